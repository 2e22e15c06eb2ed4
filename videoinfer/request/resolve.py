"""Fit a request to a model's grid: snap what can be snapped (and say so), refuse the rest before any heavy work."""

import warnings
from dataclasses import dataclass
from typing import Any

from ..errors import RequestError
from .grid import Grid, canvas_size, check_aspect, round_side
from .schema import GenerationRequest, Workflow


class RequestAdjusted(UserWarning):
    """The model cannot make exactly what was asked; the nearest thing that it can make is used instead."""


@dataclass(frozen=True)
class Adjustment:
    """One value that was changed: the field, what was asked, what is made, and why."""

    field: str
    asked: Any
    actual: Any
    reason: str

    def __str__(self) -> str:
        return f"{self.field}: asked {_show(self.asked)}, making {_show(self.actual)}: {self.reason}"


@dataclass(frozen=True)
class ResolvedRequest:
    """A request with every number settled. `width`, `height` in pixels; `steps` counts model forwards."""

    request: GenerationRequest
    workflow: Workflow
    width: int
    height: int
    num_frames: int
    steps: int
    seed: int
    adjustments: tuple[Adjustment, ...]


def resolve(
    request: GenerationRequest,
    grid: Grid,
    *,
    strict: bool = False,
    keyframe_size: tuple[int, int] | None = None,
) -> ResolvedRequest:
    """Settle frames, canvas and steps of `request` on `grid`.

    Args:
        strict: refuse instead of adjusting.
        keyframe_size: (width, height) of the first keyframe as it is displayed; the canvas of an fl2va request that
            names neither size nor aspect ratio follows its ratio.

    Warns:
        RequestAdjusted: once for each value that had to be changed.

    Raises:
        RequestError: a value outside the model's range, too many references, guidance or a negative prompt that the
            model does not have, or any adjustment under `strict`.
    """
    _check_guidance(request, grid)
    _check_references(request, grid)
    adjustments: list[Adjustment] = []
    num_frames = _frames(request, grid, adjustments)
    width, height = _canvas(request, grid, keyframe_size, adjustments)
    steps = grid.default_steps if request.steps is None else request.steps
    if steps > grid.max_steps:
        raise RequestError(f"steps {steps} is too many: this model takes 1 to {grid.max_steps} forwards.")
    if strict and adjustments:
        changes = "; ".join(str(adjustment) for adjustment in adjustments)
        raise RequestError(f"strict mode refuses to adjust the request: {changes}. Ask for the value that can be made.")
    for adjustment in adjustments:
        warnings.warn(str(adjustment), RequestAdjusted, stacklevel=2)
    return ResolvedRequest(
        request, request.workflow, width, height, num_frames, steps, request.seed, tuple(adjustments)
    )


def _check_guidance(request: GenerationRequest, grid: Grid) -> None:
    if request.guidance is not None and not grid.supports_guidance:
        raise RequestError(f"guidance {request.guidance:g} cannot be used: {grid.why_no_guidance}. Leave guidance out.")
    if request.negative_prompt is not None and not grid.supports_negative:
        raise RequestError(
            f"the negative prompt cannot be used: {grid.why_no_guidance}. Leave it out, and say in the prompt what "
            "should be seen instead."
        )


def _check_references(request: GenerationRequest, grid: Grid) -> None:
    kinds = [reference.kind for reference in request.references]
    if request.workflow != "ref2va":
        return
    for kind, most in (("image", grid.max_images), ("video", grid.max_videos), ("audio", grid.max_audios)):
        if kinds.count(kind) > most:
            raise RequestError(f"{kinds.count(kind)} {kind} references are too many: this model takes at most {most}.")
    if len(kinds) > grid.max_references:
        raise RequestError(
            f"{len(kinds)} references are too many: this model takes at most {grid.max_references} in all."
        )
    if set(kinds) == {"audio"} and not grid.audio_alone:
        raise RequestError("audio references cannot be used alone: add at least one image or video reference.")


def _frames(request: GenerationRequest, grid: Grid, adjustments: list[Adjustment]) -> int:
    if request.duration is not None:
        # Seconds mean the nearest frame: 5.17 s is how 124 frames at 24 fps are written.
        asked, shown = request.duration * grid.fps, f"duration {request.duration:g} s"
    elif request.num_frames is not None:
        asked, shown = request.num_frames, f"num_frames {request.num_frames}"
    else:
        return grid.default_frames
    rule = f"{grid.frames_per_chunk}*n+{grid.frames_tail}"
    lengths = (
        f"this model makes {grid.min_frames} to {grid.max_frames} frames ({grid.min_frames / grid.fps:.2f} to "
        f"{grid.max_frames / grid.fps:.2f} s at {grid.fps} fps), rounded up to {rule}"
    )
    # Compared before rounding, because a huge float has no frame count.
    if asked > grid.max_frames + 0.5:
        raise RequestError(f"{shown} is too long: {lengths}.")
    wanted = round(asked)
    if wanted < grid.min_frames:
        raise RequestError(f"{shown} is too short: {lengths}.")
    actual = grid.snap_frames(wanted)
    if actual > grid.max_frames:
        raise RequestError(f"{shown} would become {actual} frames, which is too long: {lengths}.")
    if grid.allowed_frames is not None and actual not in grid.allowed_frames:
        allowed = ", ".join(f"{n} ({n / grid.fps:.2f} s)" for n in sorted(grid.allowed_frames))
        raise RequestError(f"{shown} would become {actual} frames; this model was trained for {allowed} only.")
    if actual != wanted:
        reason = f"frames come as {rule} at {grid.fps} fps"
        if request.duration is not None:
            adjustments.append(Adjustment("duration", request.duration, round(actual / grid.fps, 4), reason))
        else:
            adjustments.append(Adjustment("num_frames", wanted, actual, reason))
    return actual


def _canvas(
    request: GenerationRequest, grid: Grid, keyframe_size: tuple[int, int] | None, adjustments: list[Adjustment]
) -> tuple[int, int]:
    if request.size is not None:
        return _explicit_canvas(request.size, grid, adjustments)
    if request.aspect_ratio is not None:
        width, height = (float(part) for part in request.aspect_ratio.split(":"))
        return _check_allowed(canvas_size(width, height, grid), grid, f"aspect ratio {request.aspect_ratio}")
    if request.workflow == "fl2va" and keyframe_size is not None:
        if grid.allowed_sizes is None:
            return canvas_size(*keyframe_size, grid)
        # A model with few canvases takes the one whose ratio is nearest; the keyframe's declared fit does the rest.
        ratio = keyframe_size[0] / keyframe_size[1]
        return min(grid.allowed_sizes, key=lambda wh: max(ratio * wh[1] / wh[0], wh[0] / (ratio * wh[1])))
    return grid.default_size or _check_allowed(canvas_size(16, 9, grid), grid, "the default 16:9")


def _explicit_canvas(asked: tuple[int, int], grid: Grid, adjustments: list[Adjustment]) -> tuple[int, int]:
    shown = f"size {asked[0]}x{asked[1]}"
    half = grid.multiple / 2
    if min(asked) < half:
        raise RequestError(f"{shown} is too small: the smallest side of this model is {grid.multiple} pixels.")
    check_aspect(*asked, grid, shown)
    # Checked before rounding, because huge sides have no float. The half multiple is the most that rounding adds to
    # the canvas of an aspect ratio, so that each of those may also be asked for by its size.
    if (asked[0] - half) * (asked[1] - half) > grid.max_pixels:
        raise RequestError(
            f"{shown} has {asked[0] * asked[1]} pixels; this model makes at most {grid.max_pixels}. "
            f"The largest canvas of this shape is {'x'.join(map(str, canvas_size(*asked, grid)))} or less."
        )
    actual = round_side(asked[0], grid), round_side(asked[1], grid)
    _check_allowed(actual, grid, shown)
    if actual != asked:
        adjustments.append(Adjustment("size", asked, actual, f"sides are multiples of {grid.multiple} pixels"))
    return actual


def _check_allowed(size: tuple[int, int], grid: Grid, shown: str) -> tuple[int, int]:
    if grid.allowed_sizes is not None and size not in grid.allowed_sizes:
        allowed = ", ".join(f"{width}x{height}" for width, height in grid.allowed_sizes)
        raise RequestError(f"{shown} means {size[0]}x{size[1]} pixels; this model was trained for {allowed} only.")
    return size


def _show(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else f"{value}"
