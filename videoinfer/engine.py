"""VideoEngine: from a request to a verified mp4 with sound, on one loaded model."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import torch

from . import stages
from .conditioning import Conditioning
from .denoise import CancelEvent, OnStep
from .device import DType, select_device, select_dtype
from .errors import GenerationError, ModelError, RequestError
from .families import Stage
from .generation import Generation
from .media import load_image
from .model import Model
from .record import describe
from .request import GenerationRequest, Grid, ResolvedRequest, resolve
from .result import Clip, Latents, VideoResult
from .run import OnStage

__all__ = ["Clip", "Conditioning", "Latents", "VideoEngine", "VideoResult"]


class VideoEngine:
    """One model, ready to make clips, one at a time. Use `from_pretrained`; a context manager closes it.

    The three stages can be called on their own; each raises VideoInferError for what a user can mend. A call while
    another one runs raises GenerationError.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self._busy = threading.Lock()
        self._closed = False

    @classmethod
    def from_pretrained(
        cls,
        model: str | Path = "demo",
        *,
        device: str = "auto",
        dtype: DType | torch.dtype = "auto",
        accept_licence: bool = False,
        offline: bool = False,
        cache_dir: str | Path | None = None,
        revision: str | None = None,
    ) -> Self:
        """Open a model: `demo` (embedded), a folder, or a hub id. Weights are read when a stage first needs them.

        device: auto (a GPU when there is one), cpu, cuda, cuda:1, ...; dtype: auto (bfloat16 on a GPU, else float32).
        Raises ModelError: no such model, not supported, incomplete, licence not accepted, no such device.
        """
        if not isinstance(model, str | Path):
            raise ModelError(f"the model {model!r} is neither a name nor a folder: use demo, a folder, or a hub id.")
        place = select_device(device)
        options = {"accept_licence": accept_licence, "offline": offline, "cache_dir": cache_dir, "revision": revision}
        return cls(Model(str(model), place, select_dtype(dtype, place), **options))

    @property
    def grid(self) -> Grid:
        """What this model can make."""
        return self.model.grid

    def resolve(self, request: GenerationRequest, *, strict: bool = False) -> ResolvedRequest:
        """The request on this model's grid; the canvas of a keyframed request follows its first picture."""
        if not isinstance(request, GenerationRequest):
            raise RequestError(f"a {type(request).__name__} is no request: give a GenerationRequest.")
        keyframe_size = None
        if request.workflow == "fl2va" and request.size is None and request.aspect_ratio is None:
            first = min(request.references, key=lambda reference: reference.kind)  # first_frame before last_frame
            keyframe_size = load_image(first.path).size
        return resolve(request, self.grid, strict=strict, keyframe_size=keyframe_size)

    def describe(self, request: GenerationRequest, *, strict: bool = False) -> dict[str, Any]:
        """What the sidecar of this request's clip says of the request, the model and the machine, before any work."""
        return describe(self.model, self.resolve(request, strict=strict))

    def encode(self, resolved: ResolvedRequest) -> Conditioning:
        """Run the text and reference encoders."""
        with self._exclusive():
            return stages.encode(self.model, resolved)

    def denoise(
        self,
        conditioning: Conditioning,
        resolved: ResolvedRequest,
        on_step: OnStep | None = None,
        cancel: CancelEvent | None = None,
    ) -> Latents:
        """Run the loop over sigmas. `on_step(step from 1, total, sigma)` after each step.

        Raises Cancelled before the first step after `cancel` is set, ModelError for a conditioning of another prompt,
        reference, canvas or model, GenerationError when the result is not finite.
        """
        with self._exclusive():
            if conditioning.key != self.conditioning_key(resolved):
                conditioning.check_matches(resolved)  # says what differs where it can
                raise ModelError("the conditioning was made for another prompt, reference or model: encode again.")
            return stages.denoise(self.model, conditioning, resolved, on_step, cancel)

    def decode(self, latents: Latents) -> Clip:
        """Run the video and audio decoders. GenerationError for NaN or Inf, and for a clip that is all black."""
        with self._exclusive():
            return stages.decode(self.model, latents)

    def conditioning_key(self, resolved: ResolvedRequest) -> str:
        """The key that `encode` gives to this request's conditioning."""
        return stages.key_of(self.model, resolved)

    def generate(
        self,
        request: GenerationRequest,
        *,
        strict: bool = False,
        on_stage: OnStage | None = None,
        on_step: OnStep | None = None,
        cancel: CancelEvent | None = None,
    ) -> VideoResult:
        """Make one clip: the mp4, then its JSON sidecar, each published only when complete.

        `on_stage` gets encode, denoise, decode, write as each begins. Raises RequestError, MediaError, ModelError or
        GenerationError with the reason, Cancelled when `cancel` is set. Once the mp4 is published it stays, whatever
        happens to the sidecar or the extras.
        """
        with self._exclusive():
            resolved = self.resolve(request, strict=strict)
            generation = Generation(self.model, resolved, on_stage=on_stage, on_step=on_step, cancel=cancel)
            generation.denoise()
            return generation.finish()

    def free(self, stage: Stage) -> None:
        """Give up the memory of the components that only this stage uses; they are read again when needed."""
        with self._exclusive():
            self.model.free(stage)

    def close(self) -> None:
        """Give up all memory. The engine cannot be used afterwards; closing twice does no harm."""
        if not self._closed:
            with self._exclusive():
                self._closed = True
                self.model.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        if self._closed:
            raise ModelError("this engine is closed: open another one with VideoEngine.from_pretrained.")
        if not self._busy.acquire(blocking=False):
            raise GenerationError("this engine is at work: one generation at a time per model. Wait, or open another.")
        try:
            yield
        finally:
            self._busy.release()
