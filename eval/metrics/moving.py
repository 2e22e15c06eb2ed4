"""What moves in a clip: the area that it sweeps, the PSNR inside it, and how much motion there is.

A flat background that both clips have flatters every PSNR, and a frozen video can still have a good one. Both measures
look at means over cells of CELL x CELL pixels: averaging leaves a moving edge what it is and divides noise by CELL.
"""

from typing import NamedTuple

import numpy as np

from .checks import as_frames, frames_pair
from .picture import psnr

CELL = 4  # pixels
SWEPT = 24.0  # levels of 255 by which a cell must leave its background
SMALLEST = 1 / 256  # share of the picture; what sweeps less does not move
SPAN = 12  # frames, half a second at 24 per second: long enough for slow motion to show
DEAD_ZONE = 4.0  # levels; a change of a cell from one span to the next up to this does not count as motion


class MovingArea(NamedTuple):
    """`mask` bool (H, W), True inside; `moves` False when nothing moved and the mask is the whole frame instead."""

    mask: np.ndarray
    moves: bool


def swept_area(frames: np.ndarray) -> np.ndarray:
    """The area, bool (H, W), that whatever moves in uint8 frames (F, H, W, 3) sweeps during the clip.

    The background of a cell is its temporal median, per colour channel. A cell is swept if in any frame one of its
    channels is more than SWEPT levels from it. What lies between swept cells, along a row or along a column, belongs to
    the area too: the middle of a large slow object never changes, and a growing one changes at its rim only.
    """
    cells = _cells(as_frames(frames))
    swept = np.asarray((np.abs(cells - np.median(cells, axis=0)) > SWEPT).any(axis=(0, 3)))
    filled = _between(swept, 0) | _between(swept, 1)
    return filled.repeat(CELL, 0).repeat(CELL, 1)[: frames.shape[1], : frames.shape[2]]


def moving_area(frames: np.ndarray, dense: np.ndarray) -> MovingArea:
    """The union of the swept areas of both clips, uint8 (F, H, W, 3): an object in the wrong place is inside it.

    When the union is smaller than SMALLEST of the picture, nothing moves: then the mask is the whole frame, and `moves`
    says so. Raises ValueError when the shapes differ or frames are not uint8.
    """
    frames, dense = frames_pair(frames, dense)
    mask = swept_area(frames) | swept_area(dense)
    return MovingArea(mask, True) if _large(mask) else MovingArea(np.ones_like(mask), False)


def object_psnr(frames: np.ndarray, dense: np.ndarray) -> tuple[float, bool]:
    """The PSNR in dB inside `moving_area`, and whether anything moves; of the whole frame if not."""
    area = moving_area(frames, dense)
    return psnr(frames, dense, area.mask), area.moves


def motion(frames: np.ndarray) -> float:
    """The amount of motion of a clip: the mean change of a cell's channel from one SPAN to the next, in levels of 255.

    Cells are averaged over SPAN frames too, and changes up to DEAD_ZONE count as 0, so that noise cannot pass for
    motion as it does in a plain mean of frame differences: of noise with a standard deviation of 10 levels next to
    nothing is left. A solid object that moves twice as fast changes twice the area, until it leaves its own area within
    a SPAN. Frames behind the last whole SPAN are not looked at; a clip shorter than two of them is cut in halves. One
    frame has no motion.
    """
    cells = _cells(as_frames(frames))
    span = max(1, min(SPAN, len(cells) // 2))
    spans = len(cells) // span
    means = cells[: spans * span].reshape(spans, span, *cells.shape[1:]).mean(1)
    change = np.abs(np.diff(means, axis=0))
    return float(np.where(change > DEAD_ZONE, change, 0.0).mean()) if spans > 1 else 0.0


def motion_ratio(frames: np.ndarray, dense: np.ndarray) -> float | None:
    """`motion` over that of the dense clip: 1 the same, 0 frozen. None when nothing moves in the dense clip.

    Raises ValueError when the shapes differ or frames are not uint8.
    """
    frames, dense = frames_pair(frames, dense)
    amount = motion(dense)
    return motion(frames) / amount if amount > 0.0 and _large(swept_area(dense)) else None


def _cells(frames: np.ndarray) -> np.ndarray:
    """Means over cells, float64 (F, ceil(H / CELL), ceil(W / CELL), 3); those at the far edges may be smaller."""
    rows, columns = np.arange(0, frames.shape[1], CELL), np.arange(0, frames.shape[2], CELL)
    sums = np.add.reduceat(np.add.reduceat(frames, rows, axis=1, dtype=np.int32), columns, axis=2, dtype=np.int32)
    heights, widths = np.diff(rows, append=frames.shape[1]), np.diff(columns, append=frames.shape[2])
    return sums / np.outer(heights, widths)[:, :, None]


def _between(marked: np.ndarray, axis: int) -> np.ndarray:
    """True from the first to the last True along an axis."""
    after = np.logical_or.accumulate(marked, axis)
    before = np.flip(np.logical_or.accumulate(np.flip(marked, axis), axis), axis)
    return after & before


def _large(mask: np.ndarray) -> bool:
    return bool(mask.mean() >= SMALLEST)
