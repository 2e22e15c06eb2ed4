"""Prompts with known answers for the three workflows: what the embedded model is evaluated on."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from ..request import GenerationRequest
from .checker import read_clip
from .render import render_clip, render_picture
from .world import BACKGROUNDS, FRAME_TEMPLATES, REFERENCE_TEMPLATES, Scene, parse, random_scene

ATTRIBUTES = ("colour", "background", "shape", "size", "motion")
WORKFLOWS = ("t2va", "fl2va", "ref2va")


@dataclass(frozen=True)
class Case:
    """One request and the attributes that its clip must show; `held_out`: its words were never trained together."""

    request: GenerationRequest
    expected: dict[str, str]
    held_out: bool = False
    scene: Scene | None = field(default=None, compare=False)


def make_cases(workflow: str, count: int, folder: Path, seed: int = 2026) -> list[Case]:
    """`count` cases, every other one held out; the pictures that they need are written into `folder`."""
    if workflow not in WORKFLOWS:
        raise ValueError(f"workflow {workflow!r} is not one of {', '.join(WORKFLOWS)}.")
    generator = torch.Generator().manual_seed(seed + WORKFLOWS.index(workflow))
    cases = []
    for number in range(count):
        scene = random_scene(generator, held_out=number % 2 == 0)
        expected = {name: getattr(scene, name) for name in ATTRIBUTES}
        prompt, references = scene.prompt(), ()
        if workflow != "t2va":
            path = folder / f"{workflow}-{number:03d}.png"
            if workflow == "fl2va":
                prompt = scene.prompt(FRAME_TEMPLATES[0])
                pixels, kind = render_clip(scene, 1)[0], "first_frame"
            else:
                prompt = scene.prompt(REFERENCE_TEMPLATES[0])
                behind = list(BACKGROUNDS)[int(torch.randint(len(BACKGROUNDS), (), generator=generator))]
                shown = Scene(scene.size, scene.colour, scene.shape, scene.motion, behind)
                pixels, kind = render_picture(shown), "image"
            Image.fromarray(pixels.numpy()).save(path)
            references = ({"kind": kind, "path": path},)
        request = GenerationRequest(prompt=prompt, references=references, seed=number)  # type: ignore[arg-type]
        cases.append(Case(request, expected, scene.held_out, scene))
    return cases


def read_cases(path: Path) -> list[Case]:
    """Cases from a JSONL file of requests. What a clip must show is read from the prompt, the rest from its picture."""
    cases = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}: not JSON ({error}).") from error
        for reference in fields.get("references", ()):
            reference["path"] = str(path.parent / reference["path"])
        request = GenerationRequest.model_validate(fields)
        expected = parse(request.prompt_text)
        for reference in request.references:
            if reference.kind in ("image", "first_frame", "last_frame"):
                with Image.open(reference.path) as picture:
                    seen = read_clip(torch.from_numpy(np.array(picture.convert("RGB")))[None])
                names = ("colour", "shape") if reference.kind == "image" else ("colour", "shape", "background", "size")
                expected = {name: getattr(seen, name) for name in names} | expected
        cases.append(Case(request, expected))
    return cases
