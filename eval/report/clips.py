"""The clips of a report as jobs of a queue: each prompt of each workflow with each method."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...request import GenerationRequest
from .methods import Method
from .prompts import Prompt


@dataclass(frozen=True)
class Clip:
    """A clip to make. `name` is that of its files; it holds a part of the request's hash, so that a clip of an earlier
    report into the same folder is used again if it is the same, and left alone if not."""

    name: str
    prompt: Prompt
    method: Method
    request: GenerationRequest

    def sidecar(self, folder: Path) -> dict[str, Any] | None:
        """The record of the clip, which `folder` holds when it is made; else None."""
        path = folder / f"{self.name}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def latents(self, folder: Path) -> Path:
        return folder / f"{self.name}.latents.safetensors"


def clips_of(prompts: Iterable[Prompt], methods: Mapping[str, Sequence[Method]]) -> list[Clip]:
    """Every prompt with every method of its workflow, prompt by prompt."""
    return [clip(prompt, method) for prompt in prompts for method in methods[prompt.workflow]]


def clip(prompt: Prompt, method: Method) -> Clip:
    """The prompt's request as the method makes it; of its own settings only a shift stays, if the method has none."""
    settings = {"steps": method.steps, "cache": method.cache, "solver": method.solver}
    if method.shift is not None:
        settings["shift"] = method.shift
    request = prompt.request.model_copy(update={"id": None, **settings})
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", method.name)[:36].strip("-.")
    name = f"{prompt.workflow}-{prompt.number:03d}-{readable}-{request.content_hash()[:6]}"
    return Clip(name, prompt, method, request.model_copy(update={"id": name}))


def job_lines(clips: Iterable[Clip]) -> str:
    """The clips as a job file, latents kept."""
    lines = []
    for one in clips:
        fields = one.request.model_dump(mode="json", exclude_none=True, exclude={"output"})
        lines.append(json.dumps({**fields, "output": {"latents": True}}, ensure_ascii=False))
    return "".join(f"{line}\n" for line in lines)
