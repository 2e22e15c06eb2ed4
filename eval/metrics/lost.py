"""What a clip of the demo world no longer shows although the dense clip of the same request shows it."""

from collections.abc import Mapping
from dataclasses import fields

import numpy as np
import torch

from ...demo.checker import Reading, read_clip

_WORDS = tuple(field.name for field in fields(Reading) if field.name not in ("sound", "pan", "path"))


def right_attributes(
    frames: np.ndarray | torch.Tensor, audio: np.ndarray | torch.Tensor | None, expected: Mapping[str, str]
) -> dict[str, bool]:
    """Whether the checker reads each attribute of a clip as expected, by name.

    frames are uint8 (F, H, W, 3) at 24 per second, audio float (2, N) at 32 kHz. `expected` maps some of colour,
    background, shape, size and motion to their words. With audio, `pan` is judged too (it must follow the object), and
    `sound` if a shape is expected (it must be that shape's).
    Raises ValueError for another name, or frames that the checker cannot take.
    """
    if unknown := sorted(set(expected) - set(_WORDS)):
        raise ValueError(f"attribute {unknown[0]!r} is not one of {', '.join(_WORDS)}.")
    reading = read_clip(torch.as_tensor(frames), None if audio is None else torch.as_tensor(audio))
    right = {name: getattr(reading, name) == word for name, word in expected.items()}
    if audio is not None:
        if "shape" in expected:
            right["sound"] = reading.sound == expected["shape"]
        right["pan"] = reading.pan is True
    return right


def lost_and_gained(right: Mapping[str, bool], dense: Mapping[str, bool]) -> tuple[list[str], list[str]]:
    """The attributes right in the dense clip and wrong in the other, and the reverse, in the order of `right`.

    Both are answers of `right_attributes`. Raises ValueError when they judge other attributes.
    """
    if set(right) != set(dense):
        raise ValueError(f"attributes {sorted(right)} cannot be compared with attributes {sorted(dense)}.")
    lost = [name for name in right if dense[name] and not right[name]]
    gained = [name for name in right if right[name] and not dense[name]]
    return lost, gained


def checker_lost(
    frames: np.ndarray | torch.Tensor,
    audio: np.ndarray | torch.Tensor | None,
    dense_frames: np.ndarray | torch.Tensor,
    dense_audio: np.ndarray | torch.Tensor | None,
    expected: Mapping[str, str],
) -> tuple[list[str], list[str]]:
    """`lost_and_gained` of two clips. Whoever compares many with one dense clip reads that one once instead."""
    return lost_and_gained(
        right_attributes(frames, audio, expected), right_attributes(dense_frames, dense_audio, expected)
    )
