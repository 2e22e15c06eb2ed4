"""What the stages hand on: latents after the loop, a clip after the decoders, and the record of a whole generation."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .request import ResolvedRequest


@dataclass(frozen=True)
class Latents:
    """The denoised streams of one clip, normalised as the model makes them, float32.

    video: (1, channels, latent frames, latent height, latent width); audio: (2, channels, audio latents), one row per
    stereo channel. cache: what the step cache did, JSON-ready; None without one.
    """

    workflow: str
    video: torch.Tensor
    audio: torch.Tensor
    cache: dict[str, Any] | None = None

    def to(self, device: torch.device) -> "Latents":
        return replace(self, video=self.video.to(device), audio=self.audio.to(device))


@dataclass(frozen=True)
class Clip:
    """frames uint8 (F, H, W, 3) RGB at `fps`; audio float32 (2, N) at `sample_rate` Hz."""

    frames: np.ndarray
    audio: np.ndarray
    fps: float
    sample_rate: int


@dataclass(frozen=True)
class VideoResult:
    """A finished generation: the mp4, its JSON sidecar, what was made, seconds per stage, peak memory in MB.

    `extras` are the other forms that `output` asked for (a folder of PNG frames, a GIF, the latents).
    """

    path: Path
    sidecar_path: Path
    resolved: ResolvedRequest
    timings: dict[str, float]
    peak_memory_mb: float
    extras: tuple[Path, ...] = ()
    record: dict[str, Any] = field(default_factory=dict, repr=False)
