"""The timing pass: rounds that alternate over the methods, in one process, on one loaded engine."""

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...jobs.report import replace_file
from ...request import Output
from .clips import Clip
from .idle import LoadMeter
from .methods import base

if TYPE_CHECKING:
    from ...engine import VideoEngine

PROMPTS = 2  # of each workflow are timed


def timed_clips(clips: Sequence[Clip]) -> list[Clip]:
    """Those clips that a round makes: the first prompts of each workflow with every method."""
    return [clip for clip in clips if clip.prompt.number < PROMPTS]


def read_timing(path: Path, clips: Sequence[Clip], rounds: int) -> dict[str, Any] | None:
    """An earlier timing of these very clips and rounds, or None."""
    try:
        timing = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return timing if timing.get("clips") == [clip.name for clip in clips] and timing.get("rounds") == rounds else None


def time_clips(
    engine: "VideoEngine", clips: Sequence[Clip], rounds: int, path: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    """Makes every clip `rounds` times and writes `path`, JSON: `samples` with the seconds of the denoise stage and of
    the whole clip (encoders, decoders, mp4), the load by others, and on what.

    Each round goes through a prompt's methods in the opposite order of the one before, so that a machine that slows
    down treats all alike. Weights and libraries are loaded before, by one clip of each workflow and kind of method.
    """
    warm = {(clip.prompt.workflow, base(clip.method.name)): clip for clip in reversed(clips)}
    samples = []
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".timing-") as name:
        for clip in warm.values():
            say(f"warming up: {clip.prompt.workflow} {clip.method.name}")
            _seconds(engine, clip, Path(name))
        meter = LoadMeter()
        if meter.load_average > 1.0:
            say(f"the load average is {meter.load_average:.2f}: the machine may not be idle, and the timing not right")
        for number in range(rounds):
            for clip in _alternating(clips, number):
                denoise, whole = _seconds(engine, clip, Path(name))
                samples.append({"clip": clip.name, "round": number, "denoise": denoise, "whole": whole})
                say(f"round {number + 1} of {rounds}: {clip.name} {denoise:.2f} s of {whole:.2f} s")
        load = meter.read()
    timing = {
        "clips": [clip.name for clip in clips],
        "rounds": rounds,
        "at": time.strftime("%Y-%m-%d %H:%M"),
        "load_average": load.load_average,
        "others": load.others,
        "idle": load.idle,
        "load": str(load),
        "samples": samples,
    }
    replace_file(path, json.dumps(timing, indent=1) + "\n")
    return timing


def _alternating(clips: Sequence[Clip], number: int) -> list[Clip]:
    """The clips prompt by prompt; in odd rounds the methods, and so the prompts, come the other way round."""
    return list(clips) if number % 2 == 0 else list(reversed(clips))


def _seconds(engine: "VideoEngine", clip: Clip, folder: Path) -> tuple[float, float]:
    """Of the denoise stage, and of all of it. Leaves no file."""
    request = clip.request.model_copy(update={"output": Output(folder=folder)})
    result = engine.generate(request)
    for made in (result.path, result.sidecar_path):
        made.unlink()
    return result.timings["denoise"], result.timings["total"]
