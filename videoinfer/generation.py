"""One clip on its way through the stages: first to its latents, then to its files. Two of them can overlap."""

import hashlib
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from . import stages
from .conditioning import Conditioning
from .denoise import CancelEvent, OnStep
from .errors import CacheWarning
from .families import Stage
from .model import Model
from .output_files import ClipFiles
from .record import describe
from .request import ResolvedRequest
from .result import Latents, VideoResult
from .run import OnStage, Run


class Generation:
    """Checks the output names at once; then `denoise()`, then `finish()`, which another thread may call.

    offload: give up each stage's weights as soon as the stage is over. writing: gives the context in which the clip is
    encoded; its time counts as the stage's.
    """

    def __init__(
        self,
        model: Model,
        resolved: ResolvedRequest,
        *,
        on_stage: OnStage | None = None,
        on_step: OnStep | None = None,
        cancel: CancelEvent | None = None,
        offload: bool = False,
        writing: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.started = time.perf_counter()
        self.model, self.resolved, self.offload = model, resolved, offload
        self._on_step, self._cancel, self._writing = on_step, cancel, writing
        self.files = ClipFiles(resolved.request)
        self.files.check_absent()
        stages.check_cache(model, resolved)
        self.run = Run(model.device, on_stage, cancel)
        self.record = describe(model, resolved)
        self.latents: Latents | None = None

    def denoise(self, conditioning: Conditioning | None = None) -> None:
        """Encode, unless a `conditioning` is given, and run the loop over sigmas."""
        if conditioning is None:
            with self.run.stage("encode"):
                conditioning = stages.encode(self.model, self.resolved)
            self._give_up("encode")
        with self.run.stage("denoise"):
            self.latents = stages.denoise(self.model, conditioning, self.resolved, self._step, self._cancel)
        self._give_up("denoise")
        if self.latents.cache is not None:
            self.record["cache"] = self.latents.cache
            for text in self.latents.cache["warnings"]:
                warnings.warn(text, CacheWarning, stacklevel=2)
        self.record["latents"] = {"video": digest(self.latents.video), "audio": digest(self.latents.audio)}

    def finish(self) -> VideoResult:
        """Decode and write. The mp4 stays once it is published, whatever happens to what belongs to it."""
        if self.latents is None:
            raise RuntimeError("finish() comes after denoise()")
        with self.run.stage("decode"):
            clip = stages.decode(self.model, self.latents)
        latents, self.latents = self.latents, None
        self._give_up("decode")
        timings = self.run.timings
        with self.run.stage("write"), self._writing():
            self.files.write_clip(clip, self.record)
        timings["total"] = time.perf_counter() - self.started
        self.record["timings"] = {name: round(seconds, 4) for name, seconds in timings.items()}
        self.record["peak_memory_mb"] = self.run.memory.megabytes
        self.record["swaps"] = self.model.swaps
        extras = self.files.write_rest(clip, latents, self.record)
        return VideoResult(
            self.files.mp4,
            self.files.sidecar,
            self.resolved,
            timings,
            self.run.memory.megabytes,
            extras=extras,
            record=self.record,
        )

    def _step(self, number: int, total: int, sigma: float) -> None:
        self.run.memory.sample()
        if self._on_step is not None:
            self._on_step(number, total, sigma)

    def _give_up(self, stage: Stage) -> None:
        if self.offload:
            self.model.free(stage)


def digest(latents: torch.Tensor) -> str:
    """sha256 in hex over the float32 values: equal for two runs that made the same latents, bit for bit."""
    return hashlib.sha256(latents.detach().float().cpu().contiguous().numpy().tobytes()).hexdigest()
