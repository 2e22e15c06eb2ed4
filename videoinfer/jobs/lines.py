"""Job files: one GenerationRequest as JSON on each line, all of them checked before anything runs."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import RequestError
from ..regular_file import expanded
from ..request import GenerationRequest, Reference

MAX_LINE = 1 << 20  # bytes; a request is a few hundred
SHOWN = 20  # errors told in full
EXCLUSIVE = {"duration": "num_frames", "num_frames": "duration", "size": "aspect_ratio", "aspect_ratio": "size"}
OUTPUT_KEYS = ("crf", "frames", "gif", "latents")


class LineErrors(RequestError):
    """What is wrong in a job file: `problems` is (line number, reason) for every bad line."""

    def __init__(self, source: str, problems: list[tuple[int, str]]) -> None:
        self.problems = problems
        shown = [f"line {number}: {reason}" for number, reason in problems[:SHOWN]]
        if len(problems) > SHOWN:
            rest = ", ".join(str(number) for number, _ in problems[SHOWN : SHOWN + 100])
            shown.append(f"and {len(problems) - SHOWN} more bad lines: {rest}" + (", ..." * (len(problems) > 120)))
        count = "1 bad line" if len(problems) == 1 else f"{len(problems)} bad lines"
        super().__init__(f"{source} has {count}; nothing was run:\n" + "\n".join(shown))


@dataclass(frozen=True)
class JobLine:
    """A request and where it stands: line `number` (from 1) of the file; `repeat` counts its seeds from 0."""

    number: int
    repeat: int
    request: GenerationRequest


def read_lines(
    lines: Iterable[bytes],
    source: str,
    base: Path,
    defaults: Mapping[str, Any] | None = None,
    repeat: int = 1,
    check: Callable[[GenerationRequest], object] | None = None,
) -> list[JobLine]:
    """The requests of a job file, `repeat` of each with seeds that count up from its own.

    lines      the file's lines, UTF-8; blank ones are skipped
    source     its name for messages
    base       the folder that relative reference paths start at
    defaults   keys of GenerationRequest for lines that do not set them (`output` key by key)
    check      called with each request; its RequestError, MediaError or ModelError belongs to the line

    Raises LineErrors with every bad line, or when there is no line at all.
    """
    found: list[JobLine] = []
    problems: list[tuple[int, str]] = []
    for number, raw in enumerate(lines, start=1):
        if not raw.strip():
            continue
        try:
            request = _request(raw, base, defaults or {})
            for k in range(repeat):
                # Built anew so that a seed beyond the allowed range is found.
                seeded = request if k == 0 else GenerationRequest(**_seeded(request, k))
                if check is not None:
                    check(seeded)
                found.append(JobLine(number, k, seeded))
        except ValueError as error:  # VideoInferError, JSON and Unicode errors are all ValueErrors
            problems.append((number, _plain(error)))
    if problems:
        raise LineErrors(source, problems)
    if not found:
        raise RequestError(f"{source} holds no jobs: write one JSON object on each line, for example {EXAMPLE}")
    return found


EXAMPLE = '{"prompt": "a large red circle bounces around on a navy background"}'


def _request(raw: bytes, base: Path, defaults: Mapping[str, Any]) -> GenerationRequest:
    if len(raw) > MAX_LINE:
        raise RequestError(f"the line has {len(raw)} bytes; at most {MAX_LINE} are allowed")
    data = json.loads(raw.decode("utf-8-sig"), object_pairs_hook=_no_duplicates)
    if not isinstance(data, dict):
        raise RequestError(f"expected a JSON object such as {EXAMPLE}, found {type(data).__name__}")
    output = data.get("output", {})
    if isinstance(output, dict):
        for key in ("path", "folder"):
            if key in output:
                raise RequestError(
                    f"output.{key}: a batch writes <id>.mp4 into its own folder; leave it out, or set id"
                )
        output = {key: value for key, value in defaults.get("output", {}).items() if key in OUTPUT_KEYS} | output
    given = {key: value for key, value in defaults.items() if key != "output" and EXCLUSIVE.get(key) not in data}
    request = GenerationRequest.model_validate({**given, **data, "output": output})
    placed = tuple(Reference(kind=r.kind, fit=r.fit, path=_placed(r.path, base)) for r in request.references)
    return request.model_copy(update={"references": placed}) if placed else request


def _placed(path: Path, base: Path) -> Path:
    path = expanded(path)
    return path if path.is_absolute() else (base / path).absolute()


def _seeded(request: GenerationRequest, offset: int) -> dict[str, Any]:
    data = request.model_dump(exclude_unset=True)
    data["seed"] = request.seed + offset
    if request.id is not None:
        data["id"] = f"{request.id}-{offset}"  # ids name files, and each seed makes its own
    return data


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        raise RequestError(f"the key {', '.join(twice)} is given twice")
    return data


def _plain(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"is not JSON: {error.msg} at column {error.colno}"
    if isinstance(error, UnicodeDecodeError):
        return f"is not UTF-8 text: byte {error.start} cannot be read"
    return str(error).replace("\n", "; ")
