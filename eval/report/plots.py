"""The plots of a report: quality over speed, and which steps were computed where."""

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .methods import base
from .pareto import AXES
from .settings import SETTINGS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = (("rho_mean", "rho, mean (less is better)", "log"), ("psnr_object", "PSNR of what moves, dB", "linear"))


def plot_names(report: Mapping[str, Any], workflow: str) -> list[tuple[str, str]]:
    """File names and titles of the plots that a workflow has."""
    details = [one for one in report["details"] if one["workflow"] == workflow]
    known = {"wall": any(one["timing"] for one in details), "priced": any(one["priced_speedup"] for one in details)}
    names = [(f"{workflow}-{axis}.png", f"quality over {AXES[axis]}") for axis in AXES if known[axis]]
    if any(one["actions"] for one in details):
        names.append((f"{workflow}-actions.png", "steps that were computed (dark) and answered (light), over sigma"))
    return names


def write_plots(report: Mapping[str, Any], folder: Path) -> None:
    """Writes every plot of `plot_names` into `folder` as PNG, over those of an earlier report."""
    folder.mkdir(parents=True, exist_ok=True)
    for workflow in report["prompts"]:
        pairs = zip(report["methods"], report["details"], strict=True)
        chosen = [(row, detail) for row, detail in pairs if row["workflow"] == workflow]
        for name, title in plot_names(report, workflow):
            axis = name.removeprefix(f"{workflow}-").removesuffix(".png")
            heading = f"{workflow}: {title}"
            figure = action_strips(chosen, heading) if axis == "actions" else quality_over(chosen, axis, heading)
            _replace(folder / name, figure)


def quality_over(chosen: Sequence[tuple[Any, Any]], axis: str, heading: str) -> "Figure":
    """Each measure of PANELS over the speed of an axis: a point for each setting, a line for each method. Left out is
    what makes the same clips as dense, which has no place on these scales."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.0, 6.0), layout="constrained")
    figure.suptitle(heading)
    for axes, (key, label, scale) in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
        _panel(axes, chosen, axis, key)
        axes.set(xlabel=f"times as fast as dense ({axis})", ylabel=label, yscale=scale)
        axes.grid(alpha=0.3)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize="small")
    return figure


def _panel(axes: "Axes", chosen: Sequence[tuple[Any, Any]], axis: str, key: str) -> None:
    from matplotlib import colormaps

    for place, method in enumerate(SETTINGS):
        points = []
        for row, detail in chosen:
            speed = row["speedup"] if axis == "wall" else detail["priced_speedup"]
            if base(row["name"]) == method and speed is not None and row["rho_mean"] > 0.0:
                points.append((speed, row[key], row["name"].removeprefix(method).lstrip("@:")))
        if points:
            points.sort()
            style = "--" if method in ("fewer-steps", "static", "fixed-interval") else "-"
            colour = colormaps["tab20"](place)
            axes.plot([x for x, _, _ in points], [y for _, y, _ in points], style, marker="o", c=colour, label=method)
            for x, y, setting in points:
                axes.annotate(setting[:24], (x, y), xytext=(4, 3), textcoords="offset points", fontsize=6)


def action_strips(chosen: Sequence[tuple[Any, Any]], heading: str) -> "Figure":
    """A row for each setting with a cell for each step, between its noise levels; the darker, the more clips computed
    it."""
    from matplotlib.figure import Figure

    rows = [(row["name"], detail["actions"]) for row, detail in chosen if detail["actions"]]
    figure = Figure(figsize=(13.0, 1.2 + 0.3 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for place, (_, actions) in enumerate(rows):
        sigmas = actions["sigmas"]
        for step, share in enumerate(actions["computed"]):
            left, right = sigmas[step], sigmas[step + 1]
            grey = str(round(0.95 - 0.85 * share, 3))
            axes.barh(place, right - left, left=left, height=0.8, color=grey, edgecolor="white", linewidth=0.3)
    axes.set(title=heading, xlabel="sigma", xlim=(1.0, 0.0), yticks=range(len(rows)), yticklabels=[n for n, _ in rows])
    axes.tick_params(axis="y", labelsize="x-small")
    axes.invert_yaxis()
    return figure


def _replace(path: Path, figure: "Figure") -> None:
    """Readers see the old picture or the new one, whole."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(content.getvalue())
    os.replace(part, path)
