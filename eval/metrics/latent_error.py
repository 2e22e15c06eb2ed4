"""rho, the relative error of the latents behind the denoise loop: what a step cache's error budget is stated in.

    rho(x) = |x - x_dense| / |x_dense|        Euclidean norms over all elements of one stream

Both sides are float32 latents of the same request, seed and sigma grid; the norms are computed in float64.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from .checks import float64_pair


def rho(latents: torch.Tensor, dense: torch.Tensor) -> float:
    """The relative error of one stream, of any shape.

    Raises ValueError when the shapes differ, a value is NaN or Inf, or the dense latents are all zero.
    """
    ours, theirs = float64_pair("latents", latents, dense)
    return float(_relative(ours.flatten()[None], theirs.flatten()[None])[0])


def frame_rhos(video: torch.Tensor, dense: torch.Tensor) -> np.ndarray:
    """The relative error of each latent frame of a video stream (1, C, T, H, W), over that frame's own norm: (T,).

    The squared rho of the stream is the mean of their squares weighted with |x_dense|^2 of the frames, so the worst
    frame is never better than the stream. Raises ValueError as `rho` does, for a frame of zeros, or for another rank.
    """
    ours, theirs = float64_pair("latents", video, dense)
    if ours.ndim != 5 or ours.shape[0] != 1:
        raise ValueError(f"video latents must be (1, C, T, H, W), got {tuple(ours.shape)}.")
    return _relative(ours[0].transpose(0, 1).flatten(1), theirs[0].transpose(0, 1).flatten(1)).numpy()


def worst_frame_rho(video: torch.Tensor, dense: torch.Tensor) -> float:
    """The largest of `frame_rhos`."""
    return float(frame_rhos(video, dense).max())


def stream_rhos(streams: Mapping[str, torch.Tensor], dense: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """`rho` of every stream by name. Raises ValueError as `rho` does, or when the two sides have other streams."""
    if not streams or set(streams) != set(dense):
        raise ValueError(f"streams {sorted(streams)} cannot be compared with streams {sorted(dense)}.")
    return {name: rho(latents, dense[name]) for name, latents in streams.items()}


def mean_and_p90(values: Sequence[float]) -> tuple[float, float]:
    """The mean over clips, and their 90th percentile by nearest rank: the ceil(0.9 n)-th smallest of n values.

    That is a value that was measured, not exceeded by at least nine clips in ten; below ten clips it is the largest.
    Raises ValueError without a value or for NaN.
    """
    ordered = np.sort(np.asarray(values, np.float64))
    if ordered.size == 0 or np.isnan(ordered).any():
        raise ValueError(f"a mean needs one number at least and no NaN, got {list(values)}.")
    return float(ordered.mean()), float(ordered[-(-9 * len(ordered) // 10) - 1])


def _relative(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    """|ours - theirs| / |theirs| of every row of (N, M)."""
    size = theirs.norm(dim=1)
    if bool((size == 0.0).any()):
        raise ValueError("dense latents, or a frame of them, are all zero: an error relative to them is not defined.")
    return (ours - theirs).norm(dim=1) / size
