"""PSNR and SSIM of decoded clips, uint8 frames (F, H, W, 3), against the dense clip of the same request.

Differences of uint8 wrap around (3 - 5 is 254), which lifts the PSNR of any two pictures to about 28 dB. Here squares
are summed as integers, exactly, and divided in float64.
"""

from collections.abc import Sequence

import numpy as np
import torch

from .checks import frames_pair

PEAK = 255.0
PSNR_CAP = 100.0  # dB; what a mean takes for everything above it, and for identical clips, which have no finite PSNR
SSIM_SMALLEST = 6  # pixels; the Gaussian window of 11 is reflected at the border by 5
_SSIM_BATCH = 16  # frames at a time, to bound the memory


def psnr(frames: np.ndarray, dense: np.ndarray, mask: np.ndarray | None = None) -> float:
    """10 log10(255^2 / MSE) in dB, the MSE over all frames and channels, inside `mask` if given; inf where identical.

    `mask` is bool, (H, W) for all frames or (F, H, W). A clip is one signal, its PSNR that of its mean squared error: a
    few perfect frames cannot lift it as they lift the mean of the frames' PSNRs.
    Raises ValueError when the shapes differ, frames are not uint8, or the mask fits no frame or holds no pixel.
    """
    frames, dense = frames_pair(frames, dense)
    if mask is None:
        return _decibels(_squared_errors(frames, dense, None).sum(), frames.size)
    mask = np.asarray(mask)
    if mask.dtype != np.bool_ or mask.shape not in (frames.shape[:3], frames.shape[1:3]):
        raise ValueError(f"a mask of {mask.dtype} {mask.shape} fits no bool pixels of frames {frames.shape}.")
    if not mask.any():
        raise ValueError(f"a mask of shape {mask.shape} holds no pixel, so nothing inside it can be compared.")
    mask = np.broadcast_to(mask, frames.shape[:3])
    return _decibels(_squared_errors(frames, dense, mask).sum(), int(mask.sum()) * 3)


def frame_psnrs(frames: np.ndarray, dense: np.ndarray) -> np.ndarray:
    """The PSNR in dB of each frame, (F,); inf where a frame is identical. Raises ValueError as `psnr` does."""
    frames, dense = frames_pair(frames, dense)
    return np.array([_decibels(error, frames[0].size) for error in _squared_errors(frames, dense, None)])


def worst_frame_psnr(frames: np.ndarray, dense: np.ndarray) -> float:
    """The smallest of `frame_psnrs`, in dB."""
    return float(frame_psnrs(frames, dense).min())


def mean_psnr(values: Sequence[float]) -> float:
    """The mean of several PSNRs in dB, each taken for at most PSNR_CAP: identical clips count, and are not left out.

    Raises ValueError without a value or for NaN.
    """
    decibels = np.asarray(values, np.float64)
    if decibels.size == 0 or np.isnan(decibels).any():
        raise ValueError(f"a mean needs one PSNR at least and no NaN, got {list(values)}.")
    return float(np.minimum(decibels, PSNR_CAP).mean())


def frame_ssims(frames: np.ndarray, dense: np.ndarray) -> np.ndarray:
    """The structural similarity of each frame, (F,), 1 for identical ones: the mean over pixels and colour channels.

    Wang et al. 2004 (doi:10.1109/TIP.2003.819861) with their Gaussian window of 11 x 11 pixels, sigma 1.5, K 0.01 and
    0.03 and range 255, borders reflected, in float32, by torchmetrics. Raises ValueError as `psnr` does, or for frames
    of fewer than SSIM_SMALLEST pixels in height or width.
    """
    from torchmetrics.functional.image import structural_similarity_index_measure  # takes seconds to import

    frames, dense = frames_pair(frames, dense)
    if min(frames.shape[1:3]) < SSIM_SMALLEST:
        raise ValueError(f"SSIM needs {SSIM_SMALLEST} pixels of height and width, got frames {frames.shape}.")
    found = []
    for start in range(0, len(frames), _SSIM_BATCH):
        ours, theirs = (
            torch.from_numpy(side[start : start + _SSIM_BATCH].astype(np.float32)).movedim(-1, 1)
            for side in (frames, dense)
        )
        found.append(structural_similarity_index_measure(ours, theirs, data_range=PEAK, reduction="none"))
    return torch.cat([torch.as_tensor(part).reshape(-1) for part in found]).double().numpy()


def ssim(frames: np.ndarray, dense: np.ndarray) -> float:
    """The mean of `frame_ssims`."""
    return float(frame_ssims(frames, dense).mean())


def _squared_errors(frames: np.ndarray, dense: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """The sum of squared differences of each frame as an exact integer, (F,), of pixels in the mask (F, H, W)."""
    sums = []
    for number, (ours, theirs) in enumerate(zip(frames, dense, strict=True)):
        difference = ours.astype(np.int32) - theirs.astype(np.int32)
        kept = difference if mask is None else difference[mask[number]]
        sums.append(np.square(kept).sum(dtype=np.int64))
    return np.array(sums, np.int64)


def _decibels(squared_error: np.int64, count: int) -> float:
    return float("inf") if squared_error == 0 else float(10.0 * np.log10(PEAK**2 * count / float(squared_error)))
