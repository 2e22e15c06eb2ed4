"""From timed samples to speeds: medians, ratios of pairs, and their spread."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .clips import Clip
from .methods import DENSE


@dataclass(frozen=True)
class Speed:
    """Seconds are medians; spreads are the smallest and the largest.

    speedup        of the denoise stage: dense over the method, same prompt and round
    clip_speedup   of the whole clip
    """

    denoise_seconds: float
    denoise_spread: tuple[float, float]
    clip_seconds: float
    clip_spread: tuple[float, float]
    speedup: float
    speedup_spread: tuple[float, float]
    clip_speedup: float
    samples: int

    @property
    def videos_per_hour(self) -> float:
        """Of one instance."""
        return 3600.0 / self.clip_seconds


def speeds(clips: Iterable[Clip], samples: Sequence[dict[str, Any]]) -> dict[tuple[str, str], Speed]:
    """Speeds by (workflow, method), of those that have samples beside a dense one of the same prompt and round."""
    by_name = {clip.name: clip for clip in clips}
    taken: dict[tuple[str, str], dict[tuple[int, int], dict[str, Any]]] = {}
    for sample in samples:
        if (clip := by_name.get(sample["clip"])) is not None:
            key = (clip.prompt.workflow, clip.method.name)
            taken.setdefault(key, {})[clip.prompt.number, sample["round"]] = sample
    found = {}
    for key, own in taken.items():
        dense = taken.get((key[0], DENSE), {})
        pairs = [(sample, dense[place]) for place, sample in own.items() if place in dense]
        if pairs:
            found[key] = _speed(pairs)
    return found


def _speed(pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> Speed:
    denoise, whole = ([own[what] for own, _ in pairs] for what in ("denoise", "whole"))
    ratios, whole_ratios = ([dense[what] / own[what] for own, dense in pairs] for what in ("denoise", "whole"))
    return Speed(
        denoise_seconds=statistics.median(denoise),
        denoise_spread=(min(denoise), max(denoise)),
        clip_seconds=statistics.median(whole),
        clip_spread=(min(whole), max(whole)),
        speedup=statistics.median(ratios),
        speedup_spread=(min(ratios), max(ratios)),
        clip_speedup=statistics.median(whole_ratios),
        samples=len(pairs),
    )
