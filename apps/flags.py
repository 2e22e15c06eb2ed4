"""From the flags of the command line, and a sidecar that they may start from, to one GenerationRequest."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import RequestError
from ..regular_file import expanded
from ..request import GenerationRequest
from .media_kind import media_kind
from .preflight import output_place

KEYFRAMES = ("first_frame", "last_frame")


@dataclass(frozen=True)
class Flags:
    """What was given on the command line; None is not given."""

    prompt: str | None = None
    soundscape: str | None = None
    music: str | None = None
    image: Path | None = None
    last_image: Path | None = None
    references: Sequence[Path] = ()
    fit: str | None = None
    seconds: float | None = None
    frames: int | None = None
    size: str | None = None
    aspect: str | None = None
    steps: int | None = None
    seed: int | None = None
    guidance: float | None = None
    negative_prompt: str | None = None
    cache: str | None = None
    shift: float | None = None
    solver: str | None = None
    output: str = "out"
    crf: int | None = None
    frames_png: bool | None = None
    gif: bool | None = None
    latents: bool | None = None


def build_request(flags: Flags, base: dict[str, Any] | None = None) -> GenerationRequest:
    """The request of `flags` over `base` (a valid request as a sidecar holds it). Raises RequestError."""
    data = dict(base or {})
    before = dict(data)
    _set_prompt(data, flags)
    _set_references(data, flags)
    for given, key, excluded in (
        (flags.seconds, "duration", "num_frames"),
        (flags.frames, "num_frames", "duration"),
        (flags.size, "size", "aspect_ratio"),
        (flags.aspect, "aspect_ratio", "size"),
        (flags.steps, "steps", None),
        (flags.seed, "seed", None),
        (flags.guidance, "guidance", None),
        (flags.negative_prompt, "negative_prompt", None),
        (flags.cache, "cache", None),
        (flags.shift, "shift", None),
        (flags.solver, "solver", None),
    ):
        if given is not None:
            data[key] = given
            # Only what the sidecar says gives way; two contradicting flags are an error of the request.
            if excluded is not None and data.get(excluded) == before.get(excluded):
                data.pop(excluded, None)
    if data != before:
        data.pop("id", None)  # The id of the sidecar names what it made, not what is asked now.
    settings = {"crf": flags.crf, "frames": flags.frames_png, "gif": flags.gif, "latents": flags.latents}
    kept = {key: value for key, value in data.pop("output", {}).items() if key in settings}
    data["output"] = {
        **kept,
        **{key: value for key, value in settings.items() if value is not None},
        **output_place(flags.output),
    }
    return GenerationRequest.model_validate(data)


def _set_prompt(data: dict[str, Any], flags: Flags) -> None:
    given = {
        "integrated_multimodal_description": flags.prompt,
        "overall_soundscape": flags.soundscape,
        "non_diegetic_music": flags.music,
    }
    given = {key: value for key, value in given.items() if value is not None}
    old = data.get("prompt")
    if not given and old is None:
        raise RequestError("there is no prompt. Say what the clip should show, or give --from with a sidecar.")
    if isinstance(old, dict) or set(given) - {"integrated_multimodal_description"}:
        parts = old if isinstance(old, dict) else {"integrated_multimodal_description": old}
        parts = {key: value for key, value in {**parts, **given}.items() if value is not None}
        if "integrated_multimodal_description" not in parts:
            raise RequestError("--soundscape and --music belong to a prompt; say what the clip should show.")
        data["prompt"] = parts
    elif given:
        data["prompt"] = flags.prompt


def _set_references(data: dict[str, Any], flags: Flags) -> None:
    old = list(data.get("references", ()))
    frames = {reference["kind"]: reference for reference in old if reference["kind"] in KEYFRAMES}
    others = [reference for reference in old if reference["kind"] not in KEYFRAMES]
    if flags.references:
        others, frames = [_reference(media_kind(path), path) for path in flags.references], {}
    for kind, path in zip(KEYFRAMES, (flags.image, flags.last_image), strict=True):
        if path is not None:
            if (found := media_kind(path)) != "image":
                raise RequestError(f"{path} is {found}, not a picture: a {kind.replace('_', ' ')} is a picture.")
            frames[kind] = _reference(kind, path)
            if not flags.references:
                others = []
    references = [frames[kind] for kind in KEYFRAMES if kind in frames] + others
    if flags.fit is not None:
        if not references:
            raise RequestError(f"--fit {flags.fit} says how a picture is put on the canvas; there is no picture.")
        references = [{**reference, "fit": flags.fit} for reference in references]
    data["references"] = references


def _reference(kind: str, path: Path) -> dict[str, Any]:
    # Absolute, so that the sidecar repeats the run from any folder.
    return {"kind": kind, "path": str(expanded(path).absolute())}
