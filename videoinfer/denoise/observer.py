"""The observer: blocks at both ends of a modular denoise loop that report each step and can end the run between two."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from diffusers import ModularPipelineBlocks
from diffusers.modular_pipelines.modular_pipeline import LoopSequentialPipelineBlocks

from ..errors import Cancelled

OnStep = Callable[[int, int, float], None]
HEAD, TAIL = "videoinfer_observer", "videoinfer_report"


class CancelEvent(Protocol):
    """Anything with the `is_set` of `threading.Event`."""

    def is_set(self) -> bool: ...


class StepObserver(ModularPipelineBlocks):
    """Called by the loop before the forward of step `i`: learns the sigmas, and ends the run when `cancel` is set."""

    def __init__(self, cancel: CancelEvent | None = None) -> None:
        super().__init__()
        self.cancel = cancel
        self.sigmas: list[float] = []
        self.failure: Exception | None = None  # of the caller's own function

    @property
    def description(self) -> str:
        return "Learns where the loop stands and ends it on request."

    def __call__(self, components: Any, block_state: Any, i: int, t: Any) -> tuple[Any, Any]:
        if i == 0:
            # Read once: on a GPU every later read would wait for the forward in flight.
            self.sigmas = components.scheduler.sigmas.tolist()
        if self.cancel is not None and self.cancel.is_set():
            raise Cancelled(f"cancelled before step {i + 1} of {len(self.sigmas) - 1}")
        return components, block_state


class StepReport(ModularPipelineBlocks):
    """Called by the loop after the update of step `i`: passes on (step from 1, total, sigma that the step ran at)."""

    def __init__(self, observer: StepObserver, on_step: OnStep) -> None:
        super().__init__()
        self.observer = observer
        self.on_step = on_step

    @property
    def description(self) -> str:
        return "Reports each finished step."

    def __call__(self, components: Any, block_state: Any, i: int, t: Any) -> tuple[Any, Any]:
        sigmas = self.observer.sigmas
        try:
            self.on_step(i + 1, len(sigmas) - 1, sigmas[i])
        except Exception as error:
            self.observer.failure = error
            raise
        return components, block_state


@contextmanager
def observed(
    loop: LoopSequentialPipelineBlocks, on_step: OnStep | None = None, cancel: CancelEvent | None = None
) -> Iterator[StepObserver]:
    """Inserts the observer at index 0 of the loop (and the report at its end), and takes them out in every outcome.

    What `on_step` raises comes out as it was raised."""
    if HEAD in loop.sub_blocks:
        raise RuntimeError("the denoise loop already has an observer: one run at a time per model")
    observer = StepObserver(cancel)
    try:
        loop.sub_blocks.insert(HEAD, observer, 0)
        if on_step is not None:
            loop.sub_blocks[TAIL] = StepReport(observer, on_step)
        yield observer
    except Exception as error:
        if observer.failure is None or error is observer.failure:
            raise
        raise observer.failure from None  # as the caller raised it: it is no failure of the model
    finally:
        for name in (HEAD, TAIL):
            loop.sub_blocks.pop(name, None)
