"""A report in words: the table for people, what was measured, and how to read it. Markdown and the page share them."""

from collections.abc import Callable, Mapping
from typing import Any

from ..metrics.picture import PSNR_CAP
from .pareto import AXES, SLACK

Report = Mapping[str, Any]

READING = (
    "Every clip is compared with the dense clip of the same prompt and seed: the latents behind the denoise loop, and "
    "the frames and the sound that the decoders make of them, before any mp4.",
    "rho is the relative error of the latents, |x - x_dense| / |x_dense|, of the worse of a clip's streams (video and "
    "sound); p90 is not exceeded by nine clips in ten.",
    f"PSNR is in dB, in float64, and counts as at most {PSNR_CAP:g}; worst tenth: the mean of the worst clips, one in "
    "ten; object: inside the area that what moves sweeps in either clip.",
    "lost counts attributes that the dense clip shows and the method's does not, over all clips; motion is the amount "
    "of motion over that of the dense clip (1 the same, 0 frozen); sound is the relative error of the waveform.",
    "forwards are those that were computed, and blocks the block-forwards that they cost in a model of {depth} blocks, "
    "where a probe of one block costs one block.",
    "speedup is of the denoise stage, and videos/h of whole clips on one instance; both are medians over prompts and "
    "rounds, and a speedup is a ratio within one round.",
    "memory is what the process that made the clips held at most; on a CPU that is all of the worker, whatever it made "
    "before.",
)


def _number(digits: int) -> Callable[[Any], str]:
    return lambda value: "" if value is None else f"{value:.{digits}f}"


def _share(value: Any) -> str:
    return "" if value is None else f"{value:.1%}"


# Title, key of a row, and how it is written.
COLUMNS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("method", "name", str),
    ("videos/h", "videos_per_hour", _number(1)),
    ("speedup", "speedup", _number(2)),
    ("forwards", "forwards", _number(1)),
    ("blocks", "block_forwards_at_depth", _number(0)),
    ("rho", "rho_mean", _number(4)),
    ("rho p90", "rho_p90", _number(4)),
    ("PSNR", "psnr_mean", _number(2)),
    ("worst tenth", "psnr_worst_decile", _number(2)),
    ("object", "psnr_object", _number(2)),
    ("SSIM", "ssim_mean", _number(4)),
    ("lost", "checker_lost", _number(0)),
    ("motion", "motion_ratio", _number(2)),
    ("sound", "audio_error", _number(3)),
    ("memory MB", "peak_memory_mb", _number(0)),
    ("violations", "violation_rate", _share),
    ("n", "n", str),
)


def table(report: Report, workflow: str) -> list[list[str]]:
    """The rows of a workflow as text, below the titles."""
    rows = [row for row in report["methods"] if row["workflow"] == workflow]
    return [[title for title, _, _ in COLUMNS], *([write(row[key]) for _, key, write in COLUMNS] for row in rows)]


def facts(report: Report) -> list[str]:
    """What was measured, on what, and what to keep in mind."""
    made = report["made_on"]
    prompts = ", ".join(f"{count} of {workflow}" for workflow, count in report["prompts"].items())
    lines = [f"Model {report['model']}, {report['steps']} forwards, prompts: {prompts}. Written {report['written']}."]
    if made:
        versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
        lines.append(f"Clips made on {made['device']}, {made['dtype']}, {made['threads']} threads; {versions}.")
    if timing := report["timing"]:
        idle = "idle" if timing["idle"] else "NOT idle"
        lines.append(
            f"Timed {timing['at']} in {timing['rounds']} alternating rounds in one process; the machine was {idle}: "
            f"others used {timing['others']:.2f} cores (load average before: {timing['load_average']:.2f})."
        )
    else:
        lines.append("Nothing was timed: the columns of speed are empty.")
    if report["budget"] is not None:
        lines.append(f"A clip whose rho is above {report['budget']:g} violates the budget.")
    for one in report["details"]:
        if one["name"] == "dense" and one["attributes"]:
            lines.append(
                f"The dense clips of {one['workflow']} show {one['attributes_right']} of the {one['attributes']} "
                "attributes that they should show."
            )
    for workflow, distances in report["proportions"].items():
        shown = ", ".join(f"rho {value:.4f} from {name}" for name, value in distances.items())
        lines.append(f"To keep proportions: the dense runs of {workflow} are themselves {shown}.")
    return lines


def best(report: Report, workflow: str) -> list[list[str]]:
    """The best methods at each speed as text, below the titles."""
    rows = [["by", "for", *(f"at {target}x" for target in _targets(report)), "front, from slow to fast"]]
    for entry in report["pareto"]:
        if entry["workflow"] == workflow:
            cells = [_best(found, entry["quality"]) for found in entry["at"].values()]
            rows.append([AXES[entry["axis"]], entry["quality"], *cells, " · ".join(entry["front"])])
    return rows


def best_note() -> str:
    return (
        "The best is the one with the best mean of all that are at least so fast "
        f"(a speed up to {SLACK:.0%} below counts)."
    )


def _targets(report: Report) -> list[str]:
    return list(report["pareto"][0]["at"]) if report["pareto"] else []


def _best(found: Mapping[str, Any] | None, quality: str) -> str:
    if found is None:
        return "none"
    digits = 4 if quality.startswith("rho") else 2
    return f"{found['name']} ({found['speed']:.2f}x, {found[quality]:.{digits}f})"


def reading(report: Report) -> list[str]:
    return [text.format(depth=report["depth"]) for text in READING]
