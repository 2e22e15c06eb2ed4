"""What every measure checks of its two sides before it computes; all of it raises ValueError."""

import numpy as np
import torch


def same_shape(what: str, ours: tuple[int, ...], dense: tuple[int, ...]) -> None:
    """Raises ValueError, naming both shapes, unless they are equal and hold something."""
    if tuple(ours) != tuple(dense):
        raise ValueError(f"{what} of shape {tuple(ours)} cannot be compared with {what} of shape {tuple(dense)}.")
    if 0 in ours or not ours:
        raise ValueError(f"{what} of shape {tuple(ours)} hold nothing to compare.")


def as_float64(what: str, values: torch.Tensor | np.ndarray) -> torch.Tensor:
    """`values` in float64 on the CPU, of any shape. Raises ValueError for NaN or Inf."""
    exact = torch.as_tensor(values).detach().cpu().double()
    wrong = int((~exact.isfinite()).sum())
    if wrong:
        raise ValueError(f"{what} of shape {tuple(exact.shape)} hold {wrong} values that are NaN or Inf.")
    return exact


def float64_pair(
    what: str, ours: torch.Tensor | np.ndarray, dense: torch.Tensor | np.ndarray
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both sides in float64 on the CPU, of one shape and finite. Raises ValueError otherwise."""
    same_shape(what, tuple(ours.shape), tuple(dense.shape))
    return as_float64(what, ours), as_float64(f"dense {what}", dense)


def as_frames(frames: np.ndarray | torch.Tensor) -> np.ndarray:
    """The clip as uint8 (F, H, W, 3). Raises ValueError for another type or shape, or without a single pixel."""
    pixels = np.asarray(frames)
    if pixels.dtype != np.uint8:
        raise ValueError(f"frames must be uint8, from 0 to 255, got {pixels.dtype} of shape {pixels.shape}.")
    if pixels.ndim != 4 or pixels.shape[-1] != 3 or pixels.size == 0:
        raise ValueError(f"frames must be (F, H, W, 3) with a pixel at least, got {pixels.shape}.")
    return pixels


def frames_pair(frames: np.ndarray | torch.Tensor, dense: np.ndarray | torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Both clips as uint8 (F, H, W, 3), of one shape. Raises ValueError otherwise."""
    same_shape("frames", tuple(frames.shape), tuple(dense.shape))
    return as_frames(frames), as_frames(dense)
