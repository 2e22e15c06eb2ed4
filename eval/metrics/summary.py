"""From the measures of single clips to the columns of a report on one step cache."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from .interval import clopper_pearson
from .latent_error import mean_and_p90
from .picture import mean_psnr


class ClipQuality(TypedDict):
    """The measures of one clip, as the functions of this folder give them; JSON but for a PSNR of inf."""

    rho: dict[str, float]  # by stream
    rho_worst_frame: float
    psnr: float
    psnr_worst_frame: float
    psnr_object: float
    object_moves: bool
    ssim: float
    motion_ratio: float | None
    audio_error: float | None  # of waveforms; None without sound
    audio_distance: float | None  # of spectra, dB; None without sound
    lost: list[str]
    gained: list[str]


@dataclass(frozen=True)
class Summary:
    """One row of a report.

    A clip's rho is that of its worst stream: a run violates its budget if any stream does. PSNRs are in dB and count as
    at most PSNR_CAP; those of the object include the clips where nothing moves, n - n_moving of them, with the whole
    frame's. `violation_rate` and its Clopper-Pearson 95 % interval are None without a budget, the audio's means without
    sound, `motion_ratio` when no dense clip moves.
    """

    n: int
    n_moving: int
    rho_mean: float
    rho_p90: float
    rho_streams: dict[str, float]  # the mean of every stream
    rho_worst_frame: float  # of all clips
    psnr_mean: float
    psnr_worst_decile: float
    psnr_worst_frame: float  # of all clips
    psnr_object: float
    ssim_mean: float
    checker_lost: int  # attributes, of all clips together
    checker_gained: int
    motion_ratio: float | None  # the median of the clips that have one
    audio_error: float | None
    audio_distance: float | None
    budget: float | None
    violations: int | None
    violation_rate: float | None
    violation_interval: tuple[float, float] | None


def worst_tenth(psnrs: Sequence[float]) -> float:
    """The mean PSNR in dB, capped as `mean_psnr` does, of the worst floor(n / 10) clips, of one at least."""
    return mean_psnr(sorted(psnrs)[: max(1, len(psnrs) // 10)])


def summarise(clips: Sequence[ClipQuality], budget: float | None = None) -> Summary:
    """One row of all clips of one cache; `budget` is the largest rho that does not violate it.

    Raises ValueError without a clip, when a measure is NaN, clips have other streams, or the budget is not positive.
    """
    _check(clips, budget)
    rhos = [max(clip["rho"].values()) for clip in clips]
    rho_mean, rho_p90 = mean_and_p90(rhos)
    psnrs = [clip["psnr"] for clip in clips]
    ratios = [clip["motion_ratio"] for clip in clips if clip["motion_ratio"] is not None]
    violations = None if budget is None else sum(value > budget for value in rhos)
    return Summary(
        n=len(clips),
        n_moving=sum(clip["object_moves"] for clip in clips),
        rho_mean=rho_mean,
        rho_p90=rho_p90,
        rho_streams={name: statistics.fmean(clip["rho"][name] for clip in clips) for name in clips[0]["rho"]},
        rho_worst_frame=max(clip["rho_worst_frame"] for clip in clips),
        psnr_mean=mean_psnr(psnrs),
        psnr_worst_decile=worst_tenth(psnrs),
        psnr_worst_frame=mean_psnr([min(clip["psnr_worst_frame"] for clip in clips)]),
        psnr_object=mean_psnr([clip["psnr_object"] for clip in clips]),
        ssim_mean=statistics.fmean(clip["ssim"] for clip in clips),
        checker_lost=sum(len(clip["lost"]) for clip in clips),
        checker_gained=sum(len(clip["gained"]) for clip in clips),
        motion_ratio=statistics.median(ratios) if ratios else None,
        audio_error=_mean([clip["audio_error"] for clip in clips]),
        audio_distance=_mean([clip["audio_distance"] for clip in clips]),
        budget=budget,
        violations=violations,
        violation_rate=None if violations is None else violations / len(clips),
        violation_interval=None if violations is None else clopper_pearson(violations, len(clips)),
    )


def _check(clips: Sequence[ClipQuality], budget: float | None) -> None:
    if not clips:
        raise ValueError("a summary needs one clip at least.")
    if budget is not None and not budget > 0.0:
        raise ValueError(f"budget {budget} is not a positive rho.")
    for number, clip in enumerate(clips):
        if not clip["rho"] or set(clip["rho"]) != set(clips[0]["rho"]):
            raise ValueError(f"clip {number} has streams {sorted(clip['rho'])}, the first {sorted(clips[0]['rho'])}.")
        measured = {**clip, **{f"rho of {name}": value for name, value in clip["rho"].items()}}
        for name, value in measured.items():
            if isinstance(value, float) and math.isnan(value):
                raise ValueError(f"clip {number}: {name} is NaN.")


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean of those that are known."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
