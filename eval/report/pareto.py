"""Which methods are worth their loss: the Pareto front of quality over speed, and the best at given speeds."""

from collections.abc import Sequence
from typing import Any

TARGETS = (1.5, 2.0, 3.0)  # times as fast as dense
SLACK = 0.02  # a speed that misses its target by so little counts as reaching it: timings are no better than that
AXES = {"wall": "speedup of the denoise stage, measured", "priced": "block-forwards at depth 50, dense over method"}
QUALITIES = {"rho_mean": -1.0, "psnr_object": 1.0}  # whether less or more is better


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """The places of those points (speed, quality; more is better in both) than which none is better in one and no
    worse in the other. Equal points are all on the front."""
    return [
        k
        for k, (speed, quality) in enumerate(points)
        if not any(s >= speed and q >= quality and (s > speed or q > quality) for s, q in points)
    ]


def pareto(rows: Sequence[dict[str, Any]], details: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each workflow, axis of AXES and measure of QUALITIES: the `front` by name, slowest first, and in `at` the
    best method of those that are at least so fast (None where no one is). An axis that was not measured is left out.
    """
    found = []
    for workflow in dict.fromkeys(row["workflow"] for row in rows):
        for axis in AXES:
            points = []
            for row, detail in zip(rows, details, strict=True):
                speed = row["speedup"] if axis == "wall" else detail["priced_speedup"]
                if row["workflow"] == workflow and speed is not None:
                    points.append((speed, row))
            for quality, sign in QUALITIES.items() if points else ():
                about = {"workflow": workflow, "axis": axis, "quality": quality}
                found.append({**about, **_best(points, quality, sign)})
    return found


def _best(points: Sequence[tuple[float, dict[str, Any]]], quality: str, sign: float) -> dict[str, Any]:
    """`front` and `at` of (speed, row)."""
    places = front([(speed, sign * row[quality]) for speed, row in points])
    ordered = sorted((points[k] for k in places), key=lambda point: point[0])
    at: dict[str, Any] = {}
    for target in TARGETS:
        fast = [point for point in points if point[0] >= target * (1.0 - SLACK)]
        speed, row = max(fast, key=lambda point: (sign * point[1][quality], point[0]), default=(None, None))
        at[f"{target:g}"] = row and {"name": row["name"], "speed": speed, quality: row[quality]}
    return {"front": [row["name"] for _, row in ordered], "at": at}
