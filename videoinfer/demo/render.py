"""Pixels and sound of a scene, drawn analytically: the truth that the embedded model learns from and is checked by."""

import math
from collections.abc import Sequence

import torch

from .world import BACKGROUNDS, COLOURS, FPS, HEIGHT, SHAPES, SIZES, WIDTH, Scene, clip_seconds, trajectory

SAMPLE_RATE = 32_000
PICTURE_SIDE = 96  # pixels of a reference picture
# Fundamental in Hz and the weights of its harmonics. All pitches are multiples of 40 Hz, so that every latent of the
# audio VAE (25 ms) holds whole periods.
TIMBRES = {
    "circle": (240.0, (1.0,)),
    "square": (320.0, (1.0, 0.0, 0.5, 0.0, 0.3)),
    "triangle": (480.0, (1.0, 0.5)),
}
LOUDNESS = 0.5


def coverage(
    shape: torch.Tensor, x: torch.Tensor, y: torch.Tensor, r: torch.Tensor, size: tuple[int, int]
) -> torch.Tensor:
    """How much of each pixel the object covers, anti-aliased.

    `shape` (B,) indexes SHAPES; `x`, `y`, `r` are (B, F) in pixels; `size` is (width, height). Returns (B, F, H, W).
    """
    width, height = size
    px = (torch.arange(width, dtype=torch.float32) + 0.5).view(1, 1, 1, -1) - x[..., None, None]
    py = (torch.arange(height, dtype=torch.float32) + 0.5).view(1, 1, -1, 1) - y[..., None, None]
    r = r[..., None, None]
    kind = shape.view(-1, 1, 1, 1)
    # Signed distances in pixels, negative inside. The square's half side and the triangle's size give the three
    # shapes about the same area; the triangle's box is centred on (x, y).
    circle = (px * px + py * py).sqrt() - r
    square = torch.maximum(px.abs(), py.abs()) - 0.89 * r
    apex = py + 1.01 * r  # distance below the apex
    triangle = torch.maximum(py - 1.01 * r, (math.sqrt(3.0) * px.abs() - apex) / 2.0)
    distance = torch.where(kind == 0, circle, torch.where(kind == 1, square, triangle))
    return (0.5 - distance).clamp(0.0, 1.0)


def paths(scenes: Sequence[Scene], seconds: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Centre x, centre y and radius of several scenes, (B, F) each; `seconds` is (F,) or (B, F)."""
    seconds = seconds.expand(len(scenes), -1) if seconds.ndim == 1 else seconds
    path = [trajectory(scene, when) for scene, when in zip(scenes, seconds, strict=True)]
    x, y, r = (torch.stack([axis[k] for axis in path]) for k in range(3))
    return x, y, r


def scene_coverage(
    scenes: Sequence[Scene], seconds: torch.Tensor, size: tuple[int, int] = (WIDTH, HEIGHT)
) -> torch.Tensor:
    """The coverage (B, F, H, W) of several scenes; `seconds` is (F,) or (B, F)."""
    x, y, r = paths(scenes, seconds)
    return coverage(torch.tensor([SHAPES.index(scene.shape) for scene in scenes]), x, y, r, size)


def scene_colours(scenes: Sequence[Scene]) -> tuple[torch.Tensor, torch.Tensor]:
    """The object's and the background's RGB in [0, 1], (B, 3) each."""
    colour = torch.tensor([COLOURS[scene.colour] for scene in scenes]) / 255.0
    return colour, torch.tensor([BACKGROUNDS[scene.background] for scene in scenes]) / 255.0


def paint(scenes: Sequence[Scene], cover: torch.Tensor) -> torch.Tensor:
    """Float RGB frames (B, F, H, W, 3) in [0, 1] from the coverage (B, F, H, W)."""
    colour, background = (rgb.view(-1, 1, 1, 1, 3) for rgb in scene_colours(scenes))
    return torch.lerp(background, colour, cover[..., None])


def render(scenes: Sequence[Scene], seconds: torch.Tensor) -> torch.Tensor:
    """Float RGB frames (B, F, H, W, 3) in [0, 1] of several scenes; `seconds` is (F,) or (B, F)."""
    return paint(scenes, scene_coverage(scenes, seconds))


def render_clip(scene: Scene, num_frames: int) -> torch.Tensor:
    """A whole clip as uint8 frames (F, H, W, 3)."""
    return (render([scene], clip_seconds(num_frames))[0] * 255.0).round().to(torch.uint8)


def render_picture(scene: Scene) -> torch.Tensor:
    """A square still picture of the object in the middle, uint8 (H, W, 3): a reference for `ref2va`."""
    middle, radius = torch.tensor([[PICTURE_SIDE / 2.0]]), torch.tensor([[SIZES[scene.size]]])
    cover = coverage(torch.tensor([SHAPES.index(scene.shape)]), middle, middle, radius, (PICTURE_SIDE, PICTURE_SIDE))
    return (paint([scene], cover)[0, 0] * 255.0).round().to(torch.uint8)


def pan_gains(scene: Scene, seconds: torch.Tensor) -> torch.Tensor:
    """Loudness of the left and the right channel, (2, N): constant power, from x."""
    x, _, _ = trajectory(scene, seconds)
    angle = (x / WIDTH).clamp(0.0, 1.0) * (math.pi / 2.0)
    return LOUDNESS * torch.stack([torch.cos(angle), torch.sin(angle)])


def tone(shape: str, num_samples: int) -> torch.Tensor:
    """The shape's own sound at full loudness, (N,), peak 1."""
    pitch, harmonics = TIMBRES[shape]
    time = torch.arange(num_samples, dtype=torch.float64) / SAMPLE_RATE
    waves = [weight * torch.sin(2.0 * math.pi * pitch * (k + 1) * time) for k, weight in enumerate(harmonics)]
    return (torch.stack(waves).sum(0) / sum(harmonics)).float()


def sound(scene: Scene, num_frames: int) -> torch.Tensor:
    """The stereo soundtrack of a clip, float32 (2, N) at 32 kHz."""
    num_samples = round(num_frames / FPS * SAMPLE_RATE)
    seconds = torch.arange(num_samples, dtype=torch.float32) / SAMPLE_RATE
    return pan_gains(scene, seconds) * tone(scene.shape, num_samples)
