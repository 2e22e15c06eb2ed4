"""A workload of known cost for measurements and tests of the queue: it sleeps, then writes a tiny clip."""

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import Cancelled, DiskFull, MediaError
from ..jobs.protocol import Task
from ..media import write_json, write_mp4
from ..request import GenerationRequest

FRAMES, SIDE, RATE = 2, 16, 8000


class StubWorkload:
    """The prompt `stub SECONDS [die|fail|full|hang|memory TIMES]` tells how long a job takes, in its `steps` equal
    steps, and how often it first goes wrong. With `stub SECONDS wait NAME` it waits after its first step until there is
    a file NAME. Those files, and files that count what was done and went wrong, are in the folder `faults`.

    Imports no torch, so that hundreds of workers can be started in a test.
    """

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
        if len(words) > 3 and words[2] != "wait" and self._count(f"{words[2]} {task.job}") < int(words[3]):
            self._note(words[2], task.job)
            self._go_wrong(words[2])
        for step in range(steps):
            time.sleep(seconds / steps)
            on_step(step + 1, steps, 1.0)
            while words[2:3] == ["wait"] and not (Path(self.faults) / words[3]).exists() and not cancel.is_set():
                time.sleep(0.02)
            if cancel.is_set():
                raise Cancelled("cancelled")

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
        frames = np.full((FRAMES, SIDE, SIDE, 3), request.seed % 200 + 20, np.uint8)
        record = {"request": request.model_dump(mode="json"), "actual": {}, "model": {"name": "stub"}}
        metadata = {name: json.dumps(value) for name, value in record.items()}
        write_mp4(output, frames, 24.0, np.zeros((2, RATE // 10), np.float32), RATE, metadata=metadata)
        write_json(Path(output).with_suffix(".json"), record)

    def _count(self, name: str) -> int:
        path = Path(self.faults) / name if self.faults else None
        return path.stat().st_size if path is not None and path.exists() else 0

    def _note(self, what: str, job: str) -> None:
        if self.faults:
            with (Path(self.faults) / f"{what} {job}").open("ab") as file:
                file.write(b".")
                file.flush()
                os.fsync(file.fileno())
