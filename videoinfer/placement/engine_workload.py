"""Tasks as the engine does them."""

import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ..conditioning import Conditioning
from ..engine import VideoEngine
from ..errors import Cancelled, DiskFull, MediaError, ModelError, OutOfMemory, RequestError
from ..generation import Generation
from ..jobs.protocol import Task
from ..request import GenerationRequest, Output
from .slots import Slots

KINDS = (
    (Cancelled, "cancelled"),
    (OutOfMemory, "memory"),
    (MemoryError, "memory"),
    (DiskFull, "disk"),
    (MediaError, "media"),
    (RequestError, "request"),
    (ModelError, "model"),
)


class LostConditioning(ValueError):
    """A stored conditioning cannot be used: it has to be made again."""


class EngineWorkload:
    """One engine; `device`, `dtype` and the rest are those of `VideoEngine.from_pretrained`.

    slots: folder and number of the places in which all workers together write clips.
    """

    def __init__(self, model: str, strict: bool = False, slots: tuple[str, int] | None = None, **options: Any) -> None:
        self.strict = strict
        self.slots = Slots(Path(slots[0]), slots[1]) if slots is not None else None
        self.engine = VideoEngine.from_pretrained(model, **options)

    def encode(self, task: Task) -> None:
        resolved = self.engine.resolve(GenerationRequest.model_validate_json(task.request), strict=self.strict)
        path = Path(str(task.conditioning))
        conditioning = self.engine.encode(resolved)
        if conditioning.key != path.stem:
            raise RequestError("a reference was changed after the queue was made: add the job again.")
        conditioning.save(path)

    def make(
        self,
        task: Task,
        on_stage: Callable[[str], None],
        on_step: Callable[[int, int, float], None],
        cancel: threading.Event,
    ) -> Callable[[], dict[str, Any]]:
        request = GenerationRequest.model_validate_json(task.request)
        place = {**request.output.model_dump(), "path": task.output, "folder": Path(task.output).parent}
        request = request.model_copy(update={"output": Output(**place)})
        resolved = self.engine.resolve(request, strict=self.strict)
        conditioning = None
        if task.conditioning is not None:
            path = Path(task.conditioning)
            try:
                conditioning = Conditioning.load(path, path.stem)
            except ModelError as error:
                raise LostConditioning(str(error)) from error
        generation = Generation(
            self.engine.model,
            resolved,
            on_stage=on_stage,
            on_step=on_step,
            cancel=cancel,
            offload=task.offload,
            writing=self.slots.one if self.slots is not None else nullcontext,
        )
        generation.denoise(conditioning)

        def finish() -> dict[str, Any]:
            result = generation.finish()
            made = {
                "latents": result.record["latents"],
                "timings": result.record["timings"],
                "peak_memory_mb": result.peak_memory_mb,
            }
            if (cache := result.record.get("cache")) is not None:
                made |= {"computed": [cache["computed"], cache["forwards"]], "warnings": cache["warnings"]}
            return made

        return finish

    def free(self) -> None:
        self.engine.free("encode")

    def error_kind(self, error: Exception) -> str:
        if isinstance(error, LostConditioning):
            return "conditioning"
        return next((kind for cls, kind in KINDS if isinstance(error, cls)), "generation")
