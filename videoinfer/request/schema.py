"""GenerationRequest: everything that decides what a clip shows, and where it goes."""

import hashlib
import json
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from ..cache_policies import normalise
from ..errors import RequestError
from ..regular_file import expanded, is_utf8, open_regular
from .base import Schema

Workflow = Literal["t2va", "fl2va", "ref2va"]
MAX_SIDE = 65536
MAX_NAME = 255 - len(".latents.safetensors.videoinfer.part")  # bytes; file systems take 255


def _clean(text: str) -> str:
    if "\0" in text:
        raise ValueError("contains a NUL character; remove it")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("is not valid Unicode text; write it as UTF-8") from None
    return text


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty; say what the clip should show")
    return text


def _parse_size(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d{1,6})\s*[xX×*]\s*(\d{1,6})\s*", value)
    if match is None:
        raise ValueError(f"{value!r} is no size; write WIDTHxHEIGHT in pixels, for example 1344x768")
    return int(match[1]), int(match[2])


def _parse_aspect(value: str) -> str:
    match = re.fullmatch(r"\s*(\d{1,5}(?:\.\d+)?)\s*[:xX/]\s*(\d{1,5}(?:\.\d+)?)\s*", value)
    if match is None or float(match[1]) == 0 or float(match[2]) == 0:
        raise ValueError(f"{value!r} is no aspect ratio; write WIDTH:HEIGHT, for example 16:9")
    return f"{match[1]}:{match[2]}"


def _parse_id(value: str) -> str:
    # Ids name files: no separators, no hidden files, nothing that a file system could refuse.
    if re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}", value) is None:
        raise ValueError(f"{value!r} is no id; use 1 to 64 of A-Z a-z 0-9 . _ - and no dot in front")
    return value


def _named_file(path: Path) -> Path:
    path = expanded(path)
    if not is_utf8(path):
        raise ValueError(f"{os.fsencode(path)!r} is not UTF-8, which the sidecar of a clip needs; rename it")
    return path


def _short_name(path: Path) -> Path:
    if (length := len(os.fsencode(path.name))) > MAX_NAME:
        raise ValueError(f"the name of {length} bytes is too long; use at most {MAX_NAME}: its parts get longer ones")
    return path


def _blank_is_none(value: Any) -> Any:
    return None if isinstance(value, str) and not value.strip() else value


def _parse_cache(setting: str | None) -> str | None:
    """The setting with every value by name; None for `dense`, which is what a request without a cache means."""
    setting = None if setting is None else normalise(setting)
    return None if setting == "dense" else setting


Text = Annotated[str, AfterValidator(_clean)]
Prompt = Annotated[Text, AfterValidator(_not_blank)]
NamedFile = Annotated[Path, AfterValidator(_named_file)]
Side = Annotated[int, Field(ge=1, le=MAX_SIDE)]


class Reference(Schema):
    """A file that the model looks at. `fit` says how a picture of another ratio is put on the canvas."""

    kind: Literal["image", "video", "audio", "first_frame", "last_frame"]
    path: NamedFile
    fit: Literal["cover", "contain", "stretch"] = "cover"

    def digest(self) -> str:
        """sha256 of the file's content, in hex. RequestError when it cannot be read."""
        try:
            with open_regular(self.path) as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise RequestError(f"the {self.kind} reference {self.path} cannot be read: {reason}.") from error


class StructuredPrompt(Schema):
    """MiniMax-H3's prompt in its three parts: what is seen and heard in order, the sound of the place, the score."""

    integrated_multimodal_description: Prompt
    overall_soundscape: Text = ""
    non_diegetic_music: Text = ""

    def text(self) -> str:
        """The one string given to the model: the three named parts, `N/A` where one is left out."""
        parts = self.model_dump()
        return "\n\n".join(f"{name}: {value.strip() or 'N/A'}" for name, value in parts.items())


class Output(Schema):
    """Where the clip goes and how it is written. `path` names the file, else it is `folder/<id>.mp4`.

    Beside it, if asked for: PNG `frames`, a `gif`, and the `latents` that the decoders made the clip of.
    """

    folder: NamedFile = Path("out")
    path: Annotated[NamedFile, AfterValidator(_short_name)] | None = None
    crf: Annotated[int, Field(ge=0, le=51)] = 18
    frames: bool = False
    gif: bool = False
    latents: bool = False

    def target(self, request_id: str, taken: Collection[Path] = ()) -> Path:
        """The mp4 to write: `path`, or the first of `<id>.mp4`, `<id>-2.mp4`, ... in `folder` that does not exist and
        is not among `taken`."""
        if self.path is not None:
            return self.path
        candidate, number = self.folder / f"{request_id}.mp4", 1
        while candidate in taken or candidate.exists() or candidate.with_suffix(".json").exists():
            number += 1
            candidate = self.folder / f"{request_id}-{number}.mp4"
        return candidate


def _prompt_form(value: Any) -> str:
    return "text" if isinstance(value, str) else "parts"


class GenerationRequest(Schema):
    """One clip to make. Frozen; an unknown key or a contradiction raises `RequestError` at construction.

    `duration` is in seconds, `size` is (width, height) in pixels (or "WxH"), `steps` counts model forwards, `seed`
    alone decides the noise, `cache` names a step cache (`first-block@0.12`). `shift` moves the noise levels of the
    video (the model's own when left out), `solver` is the order of the steps: `euler` or `ab2`, two-step
    Adams-Bashforth. What a value may be on a given model is decided by `resolve`.
    """

    prompt: Annotated[
        Annotated[Prompt, Tag("text")] | Annotated[StructuredPrompt, Tag("parts")], Discriminator(_prompt_form)
    ]
    id: Annotated[str, AfterValidator(_parse_id)] | None = None
    references: tuple[Reference, ...] = ()
    duration: Annotated[float | None, Field(gt=0)] = None
    num_frames: Annotated[int | None, Field(ge=1)] = None
    size: Annotated[tuple[Side, Side] | None, BeforeValidator(_parse_size)] = None
    aspect_ratio: Annotated[str, AfterValidator(_parse_aspect)] | None = None
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    steps: Annotated[int | None, Field(ge=1)] = None
    guidance: float | None = None
    negative_prompt: Annotated[Text | None, BeforeValidator(_blank_is_none)] = None
    cache: Annotated[str | None, AfterValidator(_parse_cache)] = None
    shift: Annotated[float | None, Field(gt=0, le=1e9)] = None
    solver: Annotated[
        Literal["euler", "ab2"] | None, AfterValidator(lambda name: None if name == "euler" else name)
    ] = None
    output: Output = Output()

    @field_validator("seed", "steps", "num_frames", "duration", "guidance", "shift", mode="before")
    @classmethod
    def _no_truth_value(cls, value: Any) -> Any:
        if isinstance(value, bool):  # Python takes true for 1
            raise ValueError(f"{str(value).lower()} is no number")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> "GenerationRequest":
        for one, other in (("duration", "num_frames"), ("size", "aspect_ratio")):
            if getattr(self, one) is not None and getattr(self, other) is not None:
                raise ValueError(f"{one} and {other} are both given; give only one of them")
        if self.cache is not None and self.solver is not None:
            raise ValueError(
                f"cache {self.cache} and solver {self.solver} are both given: a forecast would be forecast again; "
                "give one of them"
            )
        kinds = [reference.kind for reference in self.references]
        for kind in ("first_frame", "last_frame"):
            if kinds.count(kind) > 1:
                raise ValueError(f"{kinds.count(kind)} references of kind {kind}; there can be one")
        keyframes = [kind for kind in kinds if kind.endswith("_frame")]
        if keyframes and len(keyframes) != len(kinds):
            others = ", ".join(sorted(set(kinds) - set(keyframes)))
            raise ValueError(
                f"{' and '.join(keyframes)} cannot be combined with {others} references: they are two workflows of the "
                "model. Give keyframes, or references"
            )
        return self

    @property
    def workflow(self) -> Workflow:
        """`t2va` text only, `fl2va` with a first and/or last frame, `ref2va` with image, video or audio references."""
        if not self.references:
            return "t2va"
        return "fl2va" if self.references[0].kind.endswith("_frame") else "ref2va"

    @property
    def prompt_text(self) -> str:
        """The string given to the model."""
        return self.prompt if isinstance(self.prompt, str) else self.prompt.text()

    def content_hash(self) -> str:
        """sha256 in hex over everything except `id` and `output`; references count by the content of their files."""
        # Unset fields are left out, so that a field added later does not change the hash of requests without it.
        content = self.model_dump(mode="json", exclude={"id", "output", "references"}, exclude_none=True)
        content["references"] = [{"kind": r.kind, "fit": r.fit, "sha256": r.digest()} for r in self.references]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @property
    def request_id(self) -> str:
        """`id`, or else the first 16 hex digits of `content_hash()`: what output files are named by."""
        return self.id or self.content_hash()[:16]
