"""One row for each method and workflow: what `report.json` holds under `methods`, and what else is known of it."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..metrics.summary import Summary, summarise
from .methods import DENSE
from .quality_file import Measured
from .speed import Speed

DEPTH = 50  # blocks of the released MiniMax-H3, at which cache reports price what they ran

Row = dict[str, Any]


def rows_of(
    measured: Iterable[Measured], speeds: Mapping[tuple[str, str], Speed], budget: float | None
) -> tuple[list[Row], list[Row]]:
    """The rows of a report in the order of the methods, and for each the details behind it.

    `budget`: the largest rho that a clip may have without violating it; None leaves the rate of violations open.
    """
    groups: dict[tuple[str, str], list[Measured]] = {}
    for one in measured:
        groups.setdefault((one.clip.prompt.workflow, one.clip.method.name), []).append(one)
    rows, details = [], []
    for (workflow, name), clips in groups.items():
        summary, speed = summarise([clip.quality for clip in clips], budget), speeds.get((workflow, name))
        blocks = statistics.fmean(_blocks(clip.sidecar) for clip in clips)
        judged = [clip for clip in clips if clip.right is not None]
        rows.append(
            {
                "name": name,
                "setting": clips[0].clip.method.setting,
                "workflow": workflow,
                "videos_per_hour": speed.videos_per_hour if speed else None,
                "speedup": speed.speedup if speed else None,
                "forwards": statistics.fmean(_computed(clip.sidecar) for clip in clips),
                "block_forwards_at_depth": blocks,
                "rho_mean": summary.rho_mean,
                "rho_p90": summary.rho_p90,
                "psnr_mean": summary.psnr_mean,
                "psnr_worst_decile": summary.psnr_worst_decile,
                "psnr_object": summary.psnr_object,
                "ssim_mean": summary.ssim_mean,
                "checker_lost": summary.checker_lost if judged else None,
                "motion_ratio": summary.motion_ratio,
                "audio_error": summary.audio_error,
                "peak_memory_mb": max(clip.sidecar["peak_memory_mb"] for clip in clips),
                "violation_rate": summary.violation_rate,
                "n": summary.n,
            }
        )
        details.append(_details(clips, judged, summary, speed))
    dense = {row["workflow"]: row["block_forwards_at_depth"] for row in rows if row["name"] == DENSE}
    for row, detail in zip(rows, details, strict=True):
        if row["workflow"] in dense:
            detail["priced_speedup"] = dense[row["workflow"]] / row["block_forwards_at_depth"]
    return rows, details


def _details(clips: Sequence[Measured], judged: Sequence[Measured], summary: Summary, speed: Speed | None) -> Row:
    told = vars(summary)
    return {
        "name": clips[0].clip.method.name,
        "workflow": clips[0].clip.prompt.workflow,
        "priced_speedup": None,
        **{key: told[key] for key in ("rho_streams", "rho_worst_frame", "psnr_worst_frame", "n_moving")},
        **{key: told[key] for key in ("checker_gained", "audio_distance", "violations", "violation_interval")},
        "attributes_right": sum(sum(clip.right.values()) for clip in judged if clip.right),
        "attributes": sum(len(clip.right) for clip in judged if clip.right),
        "timing": {**vars(speed), "videos_per_hour": speed.videos_per_hour} if speed else None,
        "actions": _actions(clips),
        "warnings": cache_warnings(clips),
        "guards": _guards(clips),
        "clips": [
            {
                "name": clip.clip.name,
                "prompt": clip.clip.prompt.number,
                "text": clip.clip.prompt.request.prompt_text,
                "rho": max(clip.quality["rho"].values()),
                "psnr": clip.quality["psnr"],
                "lost": clip.quality["lost"],
            }
            for clip in clips
        ],
    }


def _computed(sidecar: Mapping[str, Any]) -> int:
    cache = sidecar.get("cache")
    return cache["computed"] if cache else sidecar["actual"]["steps"]


def _blocks(sidecar: Mapping[str, Any]) -> int:
    cache = sidecar.get("cache")
    return cache["block_forwards_at_depth"]["count"] if cache else sidecar["actual"]["steps"] * DEPTH


def _actions(clips: Sequence[Measured]) -> Row | None:
    """How often each step was computed, and between which noise levels of the first stream it lies."""
    caches = [clip.sidecar["cache"] for clip in clips if clip.sidecar.get("cache")]
    if not caches:
        return None
    computed = [[bool(entry["computed"]) for entry in cache["steps"]] for cache in caches]
    shares = [statistics.fmean(marks) for marks in zip(*computed, strict=True)]
    return {"sigmas": next(iter(caches[0]["sigmas"].values())), "computed": shares}


def _guards(clips: Sequence[Measured]) -> dict[str, int]:
    """What was unexpected and therefore computed, over all clips."""
    total: dict[str, int] = {}
    for clip in clips:
        for reason, count in (clip.sidecar.get("cache") or {}).get("guards", {}).items():
            total[reason] = total.get(reason, 0) + count
    return total


def cache_warnings(clips: Sequence[Measured]) -> list[str]:
    """What the caches of one method warned of, with in how many clips."""
    warned = [cache["warnings"] for clip in clips if (cache := clip.sidecar.get("cache")) and cache["warnings"]]
    if not warned:
        return []
    where = "every clip" if len(warned) == len(clips) else f"{len(warned)} of {len(clips)} clips"
    return [f"in {where}: {text}" for text in warned[0]]
