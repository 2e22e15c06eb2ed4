"""From checked requests to rows of the journal: identity, cost, and what a worker keeps loaded for each."""

import hashlib
import json
from collections.abc import Callable, Iterable

from ..errors import RequestError
from ..request import GenerationRequest, ResolvedRequest
from .lines import JobLine
from .rows import NewJob


def job_id(request: GenerationRequest, content: str) -> str:
    """16 hex digits of a hash over the request, the content of its references (`content`), its own id, and how its
    output is written; where it is written does not count."""
    output = request.output.model_dump(mode="json", include={"crf", "frames", "gif"})
    if request.output.latents:  # left out otherwise, so that jobs from before it could be asked for keep their ids
        output["latents"] = True
    return hashlib.sha256(json.dumps([content, request.id, output], sort_keys=True).encode()).hexdigest()[:16]


def cost(resolved: ResolvedRequest) -> float:
    """What the clip costs in 1e9 pixel-forwards: frames x width x height x forwards. The number of rows of a DiT's
    sequence is proportional to the first three."""
    return resolved.num_frames * resolved.width * resolved.height * resolved.steps / 1e9


def part(resolved: ResolvedRequest) -> str:
    """Jobs of equal part follow each other on a worker without a swap of weights or a new shape."""
    return f"{resolved.workflow} {resolved.width}x{resolved.height}x{resolved.num_frames}"


def new_jobs(
    lines: Iterable[JobLine],
    resolve: Callable[[GenerationRequest], ResolvedRequest],
    conditioning_key: Callable[[ResolvedRequest], str],
) -> tuple[list[NewJob], int]:
    """The jobs of a file's lines, and how many lines were equal to an earlier one and make no job of their own.

    Raises RequestError: two different jobs of one id.
    """
    jobs: dict[str, NewJob] = {}
    names: dict[str, int] = {}
    equal = 0
    for line in lines:
        request = line.request
        content = request.content_hash()
        identity = job_id(request, content)
        if identity in jobs:
            equal += 1
            continue
        name = request.id or identity
        if name in names:
            raise RequestError(
                f"lines {names[name]} and {line.number} have the same id {name!r} and are different jobs: ids name "
                "files; give each its own, or none."
            )
        names[name] = line.number
        resolved = resolve(request)
        text = json.dumps(request.model_dump(mode="json", exclude_none=True), ensure_ascii=False)
        jobs[identity] = NewJob(
            identity,
            line.number,
            text,
            content,
            conditioning_key(resolved),
            name,
            part(resolved),
            cost(resolved),
        )
    return list(jobs.values()), equal
