"""Pictures for the eye: moments of a clip beside those of the dense one, and how they differ."""

from pathlib import Path

import numpy as np
from PIL import Image

from ...media import published
from .clips import Clip
from .methods import DENSE

PROMPTS = 2  # of each workflow have pictures
MOMENTS = (1 / 6, 1 / 2, 5 / 6)  # of the clip, one row each
AMPLIFIED = 4  # times, so that small differences are seen
GAP = 4  # pixels


def example_path(folder: Path, clip: Clip) -> Path | None:
    """Where the picture of a clip goes; None for a clip that gets none."""
    wanted = clip.prompt.number < PROMPTS and clip.method.name != DENSE
    return folder / f"{clip.name}.png" if wanted else None


def write_example(path: Path, frames: np.ndarray, dense: np.ndarray) -> None:
    """Writes `side_by_side` as PNG. Raises MediaError when the file exists, or cannot be written."""
    with published(path) as part:
        Image.fromarray(side_by_side(frames, dense)).save(part, format="PNG")


def side_by_side(frames: np.ndarray, dense: np.ndarray) -> np.ndarray:
    """Frames uint8 (F, H, W, 3) of a clip and of the dense one as one picture: a row per moment with the dense frame,
    that of the clip, and their absolute difference AMPLIFIED times."""
    rows = []
    for moment in MOMENTS:
        at = round(moment * (len(dense) - 1))
        difference = np.abs(frames[at].astype(np.int16) - dense[at]) * AMPLIFIED
        rows.append(_joined([dense[at], frames[at], difference.clip(0, 255).astype(np.uint8)], axis=1))
    return _joined(rows, axis=0)


def _joined(pictures: list[np.ndarray], axis: int) -> np.ndarray:
    shape = list(pictures[0].shape)
    shape[axis] = GAP
    gap = np.full(shape, 255, np.uint8)
    return np.concatenate([part for picture in pictures for part in (picture, gap)][:-1], axis=axis)
