"""A workload of known cost for measurements and tests of the queue: it sleeps, then writes a tiny clip."""

import hashlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import Cancelled, DiskFull, MediaError
from ..jobs.protocol import Task
from ..output_files import ClipFiles
from ..request import GenerationRequest, Output
from ..result import Clip

FRAMES, SIDE, RATE = 2, 16, 8000


class StubWorkload:
    """The prompt `stub SECONDS [die|fail|hang|full TIMES]` tells how long a job takes, in its `steps` equal steps, and
    how often it first goes wrong. How often it went wrong is counted in files of the folder `faults`."""

    def __init__(self, faults: str = "", clip: bool = True) -> None:
        self.faults, self.clip = faults, clip

    def encode(self, task: Task) -> None:
        path = Path(str(task.conditioning))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".json").write_text("{}")
        self._note("encoded", path.stem)

    def make(
        self,
        task: Task,
        on_stage: Callable[[str], None],
        on_step: Callable[[int, int, float], None],
        cancel: threading.Event,
    ) -> Callable[[], dict[str, Any]]:
        request = GenerationRequest.model_validate_json(task.request)
        words = request.prompt_text.split()
        seconds, steps = float(words[1]), request.steps or 4
        self._note("made", task.job)
        on_stage("denoise")
        if len(words) > 3 and self._count(f"{words[2]} {task.job}") < int(words[3]):
            self._note(words[2], task.job)
            self._go_wrong(words[2])
        for step in range(steps):
            if cancel.is_set():
                raise Cancelled("cancelled")
            time.sleep(seconds / steps)
            on_step(step + 1, steps, 1.0)

        def finish() -> dict[str, Any]:
            on_stage("decode")
            if self.clip:
                self._write(request, task.output)
            else:
                Path(task.output).touch(exist_ok=False)
            digest = hashlib.sha256(f"{request.prompt_text} {request.seed}".encode()).hexdigest()
            return {"latents": {"video": digest}, "timings": {"total": seconds}}

        return finish

    def free(self) -> None: ...

    def error_kind(self, error: Exception) -> str:
        kinds = ((Cancelled, "cancelled"), (MemoryError, "memory"), (DiskFull, "disk"), (MediaError, "media"))
        return next((kind for cls, kind in kinds if isinstance(error, cls)), "generation")

    def _go_wrong(self, how: str) -> None:
        if how == "die":
            os.kill(os.getpid(), 9)
        if how == "hang":
            time.sleep(3600.0)
        if how == "memory":
            raise MemoryError("no memory left")
        if how == "full":
            raise DiskFull("the disk is full")
        raise RuntimeError("it went wrong")

    def _write(self, request: GenerationRequest, output: str) -> None:
        place = {**request.output.model_dump(), "path": output, "folder": Path(output).parent}
        files = ClipFiles(request.model_copy(update={"output": Output(**place)}))
        files.check_absent()
        frames = np.full((FRAMES, SIDE, SIDE, 3), request.seed % 200 + 20, np.uint8)
        record = {"request": request.model_dump(mode="json"), "actual": {}, "model": {"name": "stub"}}
        clip = Clip(frames, np.zeros((2, RATE // 10), np.float32), 24.0, RATE)
        files.write_clip(clip, record)
        files.write_rest(clip, record)

    def _count(self, name: str) -> int:
        path = Path(self.faults) / name if self.faults else None
        return path.stat().st_size if path is not None and path.exists() else 0

    def _note(self, what: str, job: str) -> None:
        if self.faults:
            with (Path(self.faults) / f"{what} {job}").open("ab") as file:
                file.write(b".")
                file.flush()
                os.fsync(file.fileno())
