"""Is what the model made a clip at all? A broken run ends as NaN, or as black frames, long before anyone looks."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..errors import GenerationError

BLACK = 4  # of 255: what a VAE makes of NaN is 0, and a dark scene still has brighter pixels than this


def check_finite(name: str, values: Any) -> None:
    """Raises GenerationError when `values` (numpy array or torch tensor) holds NaN or Inf. `name` says what it is."""
    finite = values.isfinite() if hasattr(values, "isfinite") else np.isfinite(values)
    if not bool(finite.all()):
        bad = int((~finite).sum())
        raise GenerationError(
            f"{name} holds NaN or Inf in {bad} of {finite.size if isinstance(finite, np.ndarray) else finite.numel()} "
            "values: try another seed, or float32"
        )


def check_clip(frames: np.ndarray, audio: np.ndarray | None = None) -> None:
    """Raises GenerationError for an all-black clip (`frames` uint8 (F, H, W, 3)) or NaN/Inf in `audio` (C, N).

    Silence is no error: a prompt may ask for it.
    """
    if audio is not None:
        check_finite("the sound", audio)
    for _ in checked_frames(frames):
        pass


def checked_frames(frames: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Passes frames on while they stream; raises GenerationError after the last one when all of them were black."""
    brightest, count = 0, 0
    for frame in frames:
        count += 1
        if brightest <= BLACK:  # once light was seen, the rest costs nothing
            brightest = max(brightest, int(frame.max()))
        yield frame
    if count and brightest <= BLACK:
        raise GenerationError(
            f"all {count} frames are black (brightest value {brightest} of 255): the run diverged, or the model's "
            "weights are damaged; try another seed, or float32"
        )
