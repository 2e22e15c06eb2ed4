"""What of a job is on disk: the truth that a resume goes by."""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import MediaError, VideoInferError
from ..media.publish import PART
from ..request import GenerationRequest
from .queue import JobQueue
from .rows import Job
from .states import State


@dataclass(frozen=True)
class ClipPlace:
    """The names that a job's output has: the same as `videoinfer.output_files.ClipFiles` gives."""

    folder: Path
    name: str

    @property
    def mp4(self) -> Path:
        return self.folder / f"{self.name}.mp4"

    @property
    def sidecar(self) -> Path:
        return self.folder / f"{self.name}.json"

    def extras(self, request: GenerationRequest) -> list[Path]:
        frames = [self.folder / f"{self.name}_frames"] if request.output.frames else []
        gif = [self.folder / f"{self.name}.gif"] if request.output.gif else []
        return frames + gif + ([self.folder / f"{self.name}.latents.safetensors"] if request.output.latents else [])


def file_facts(path: Path) -> dict[str, Any]:
    """Size, modification time and sha256 of a clip, as they are kept in the journal."""
    status = path.stat()
    with path.open("rb") as file:
        return {
            "bytes": status.st_size,
            "mtime_ns": status.st_mtime_ns,
            "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
        }


def unchanged(path: Path, facts: dict[str, Any]) -> bool:
    """Whether the clip is still the one of `facts`; read again only when its time or size say that it may not be."""
    try:
        status = path.stat()
        if status.st_size != facts.get("bytes"):
            return False
        return status.st_mtime_ns == facts.get("mtime_ns") or file_facts(path)["sha256"] == facts.get("sha256")
    except OSError:
        return False


def made_by(job: Job, path: Path) -> dict[str, Any] | None:
    """The metadata of the clip at `path` when it is a whole clip of this very job, else None."""
    from ..media import probe_mp4

    try:
        metadata = probe_mp4(path)["metadata"]
        written = GenerationRequest.model_validate(_parsed(metadata.get("request")))
        wanted = GenerationRequest.model_validate_json(job.request)
    except (MediaError, VideoInferError):
        return None
    same = written.model_dump(exclude={"output"}) == wanted.model_dump(exclude={"output"})
    return metadata if same else None


def adopt(queue: JobQueue, job: Job, place: ClipPlace) -> bool:
    """Whether the job's clip lies complete on disk although the journal does not say so: it then becomes done.

    That is how a crash between the publishing of a clip and the journal's entry ends. A lost sidecar is written anew
    from what the clip itself holds; where other files of the job are missing, clip and sidecar are made again.
    """
    metadata = made_by(job, place.mp4) if place.mp4.exists() else None
    if metadata is None:
        return False
    request = GenerationRequest.model_validate_json(job.request)
    if not all(path.exists() for path in place.extras(request)):
        clear(place, request)
        return False
    record: dict[str, Any] = {}
    if place.sidecar.exists():
        with contextlib.suppress(OSError, ValueError):
            record = json.loads(place.sidecar.read_text(encoding="utf-8"))
    else:
        from ..media import write_json

        parts = {key: _parsed(metadata.get(key)) for key in ("request", "actual", "model")}
        write_json(place.sidecar, {**parts, "recovered": "from the clip, after a crash before this file was written"})
    result = {
        **file_facts(place.mp4),
        **{k: record[k] for k in ("latents", "timings", "peak_memory_mb") if k in record},
    }
    queue.settle(job.id, State.DONE, "found complete on disk", result)
    return True


def clear(place: ClipPlace, request: GenerationRequest) -> None:
    """Remove the files of a job that was not finished. Only for names whose clip `made_by` knows, or that have none."""
    for path in (*place.extras(request), place.sidecar, place.mp4):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def remove_parts(folder: Path, names: set[str]) -> int:
    """Remove the part files of these clips that no living process writes. Returns how many."""
    count = 0
    endings = (".mp4", ".json", ".gif", "_frames", ".latents.safetensors")
    ours = {f"{name}{ending}{PART}" for name in names for ending in endings}
    for path in folder.glob(f"*{PART}"):
        if path.name not in ours:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
            count += 1
            continue
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
                count += 1
            finally:
                os.close(descriptor)
    return count


def recover(queue: JobQueue, folder: Path) -> dict[str, int]:
    """Bring the journal and the disk together before a run. Counts of what was adopted, redone and cleared away.

    Done jobs whose clip is missing or changed are queued again; a changed clip is kept as `<name>.mp4.changed`.
    """
    counts = {"adopted": 0, "redone": 0, "parts": 0}
    for job in queue.jobs(State.DONE):
        place = ClipPlace(folder, job.name)
        if job.result is not None and unchanged(place.mp4, job.result):
            continue
        reason = "its clip is gone"
        if place.mp4.exists():
            reason = f"its clip was changed; that file is now {_move_aside(place.mp4).name}"
        for path in (place.sidecar, *place.extras(GenerationRequest.model_validate_json(job.request))):
            if path.exists():
                _move_aside(path)
        queue.redo(job.id, reason)
        counts["redone"] += 1
    waiting = queue.jobs(State.QUEUED, State.ENCODED)
    for job in waiting:
        place = ClipPlace(folder, job.name)
        if place.mp4.exists():
            counts["adopted"] += adopt(queue, job, place)
    counts["parts"] = remove_parts(folder, {job.name for job in queue.jobs()})
    return counts


def _move_aside(path: Path) -> Path:
    number = 1
    while os.path.lexists(target := path.with_name(f"{path.name}.changed" + (f"-{number}" if number > 1 else ""))):
        number += 1
    path.rename(target)
    return target


def _parsed(value: Any) -> Any:
    """The clip's metadata keeps each of our objects as JSON text."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return json.loads(value)
    return value if value is not None else {}
