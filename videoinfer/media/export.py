"""The other forms of a clip, through imageio: a folder of PNG frames, and an animated GIF."""

import shutil
from collections.abc import Iterable
from pathlib import Path

import imageio.v3 as imageio
import numpy as np

from ..errors import MediaError
from .publish import part_of, published, refuse_existing, write_error


def write_frames(folder: str | Path, frames: Iterable[np.ndarray]) -> int:
    """Writes `frames` (uint8 (H, W, 3)) as `frame_00000.png`, ... into a new folder, and returns how many.

    They are written into a part folder, which is renamed when complete and removed in every other outcome.
    Raises MediaError when `folder` exists, there is no frame, or the disk refuses.
    """
    folder = Path(folder)
    refuse_existing(folder)
    part = part_of(folder)
    count = 0
    try:
        try:
            shutil.rmtree(part, ignore_errors=True)  # left by a killed process
            part.mkdir(parents=True)
            for frame in frames:
                imageio.imwrite(part / f"frame_{count:05d}.png", frame)
                count += 1
            if not count:
                raise MediaError(f"cannot write {folder}: the clip has no frames")
            refuse_existing(folder)
            part.rename(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise write_error(folder, error) from error
    return count


def write_gif(path: str | Path, frames: Iterable[np.ndarray], fps: float) -> None:
    """Writes `frames` (uint8 (H, W, 3)) as an endless GIF.

    GIF counts time in steps of 1/100 s, so the frames get turns of 40 and 50 ms at 24 fps: the total length is right.
    Holds the whole clip in memory. Raises MediaError when `path` exists, there is no frame, fps is outside 1..50 (no
    viewer shows shorter turns than 20 ms), or the disk refuses.
    """
    path = Path(path)
    if not 1 <= fps <= 50:
        raise MediaError(f"fps={fps} is not allowed in a GIF: use 1 to 50")
    with published(path) as part:
        images = list(frames)
        if not images:
            raise MediaError(f"cannot write {path}: the clip has no frames")
        ends = [round(100 * (i + 1) / fps) for i in range(len(images))]
        turns_ms = [10 * (end - start) for start, end in zip([0, *ends], ends, strict=False)]
        imageio.imwrite(part, images, extension=".gif", plugin="pillow", duration=turns_ms, loop=0)
