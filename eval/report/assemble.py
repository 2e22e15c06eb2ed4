"""The whole report as one object: what `report.json` holds, and what its pages are made of."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .clips import Clip
from .methods import DENSE, FEWER, base
from .pareto import pareto
from .quality_file import Measured
from .speed import speeds
from .table import DEPTH, rows_of


def assemble(
    clips: Sequence[Clip],
    measured: Sequence[Measured],
    reasons: Mapping[str, str],
    timing: dict[str, Any] | None,
    model: str,
    steps: int,
    budget: float | None,
) -> dict[str, Any]:
    """JSON-ready.

    reasons  why a clip was not made, by its name, as far as it is known
    timing   what `time_clips` gave; None leaves the columns of speed empty
    """
    rows, details = rows_of(measured, speeds(clips, timing["samples"]) if timing else {}, budget)
    have = {one.clip.name for one in measured}
    missing = [
        {"clip": clip.name, "reason": reasons.get(clip.name, "not compared: the dense clip of its prompt is missing")}
        for clip in clips
        if clip.name not in have
    ]
    return {
        "methods": rows,
        "details": details,
        "pareto": pareto(rows, details),
        "model": model,
        "steps": steps,
        "depth": DEPTH,
        "budget": budget,
        "prompts": {
            workflow: len({clip.prompt.number for clip in clips if clip.prompt.workflow == workflow})
            for workflow in dict.fromkeys(clip.prompt.workflow for clip in clips)
        },
        "proportions": proportions(rows, steps),
        "warnings": _warnings(details, measured, timing, missing),
        "missing": missing,
        "made_on": _made_on(measured),
        "timing": {key: timing[key] for key in ("at", "rounds", "load_average", "others", "idle")} if timing else None,
        "written": time.strftime("%Y-%m-%d %H:%M"),
    }


def proportions(rows: Iterable[Mapping[str, Any]], steps: int) -> dict[str, dict[str, float]]:
    """How far Dense itself is from runs with more forwards, by workflow and name, where the methods hold such runs."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        if base(row["name"]) == FEWER and row["forwards"] > steps:
            found.setdefault(row["workflow"], {})[row["name"]] = row["rho_mean"]
    return found


def _warnings(
    details: Iterable[Mapping[str, Any]],
    measured: Iterable[Measured],
    timing: Mapping[str, Any] | None,
    missing: Sequence[Any],
) -> list[str]:
    found = [f"{one['workflow']} {one['name']}, {text}" for one in details for text in one["warnings"]]
    for one in details:
        if one["guards"]:
            counts = ", ".join(f"{reason} {count}" for reason, count in one["guards"].items())
            found.append(f"{one['workflow']} {one['name']}: steps were computed for reasons not expected ({counts}).")
    places = _places(measured)
    if len(places) > 1:
        found.append(
            "the clips were not all made alike, and differ for that alone: "
            + "; ".join(f"{device}, {dtype}, {threads} threads" for device, dtype, threads in sorted(places))
        )
    if timing and not timing["idle"]:
        found.append(f"the machine was not idle, and the speeds are not to be trusted: {timing['load']}.")
    if missing:
        found.append(f"{len(missing)} clips are missing; see the end.")
    return found


def _places(measured: Iterable[Measured]) -> set[tuple[str, str, int]]:
    return {(one.sidecar["device"], one.sidecar["dtype"], one.sidecar["threads"]) for one in measured}


def _made_on(measured: Sequence[Measured]) -> dict[str, Any]:
    """What the first dense clip was made with."""
    sidecar = next((one.sidecar for one in measured if one.clip.method.name == DENSE), {})
    return {key: sidecar[key] for key in ("device", "dtype", "threads", "versions", "model") if key in sidecar}
