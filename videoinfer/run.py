"""The bookkeeping of one generation: which stage it is in, how long each took, how much memory was held."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import torch

from .denoise import CancelEvent
from .errors import Cancelled

OnStage = Callable[[str], None]


class PeakMemory:
    """`sample()` at steps and stage borders; `megabytes` (1e6 bytes) is the highest seen since construction.

    On a GPU it is what torch allocated, else the resident set of this process.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._highest = 0
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        self.sample()

    def sample(self) -> None:
        if self._device.type != "cuda":  # torch's allocator keeps its own peak
            self._highest = max(self._highest, psutil.Process().memory_info().rss)

    @property
    def megabytes(self) -> float:
        highest = torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else self._highest
        return round(highest / 1e6, 1)


class Run:
    """`timings`: seconds by stage, reading the weights that a stage needed included."""

    def __init__(self, device: torch.device, on_stage: OnStage | None, cancel: CancelEvent | None) -> None:
        self.timings: dict[str, float] = {}
        self.memory = PeakMemory(device)
        self._device = device
        self._on_stage = on_stage
        self._cancel = cancel

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Announces and times a stage. Raises Cancelled when the run was cancelled before it began."""
        if self._cancel is not None and self._cancel.is_set():
            raise Cancelled(f"cancelled before the {name} stage")
        if self._on_stage is not None:
            self._on_stage(name)
        started = time.perf_counter()
        yield
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self.timings[name] = time.perf_counter() - started
        self.memory.sample()
