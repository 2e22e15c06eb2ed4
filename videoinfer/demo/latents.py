"""What the embedded model's video and audio latents mean, so that its DiT can be trained before its VAEs are.

Video, 24 channels per latent voxel (16 x 16 pixels x 4 frames; the first frame of every 17 stands alone):

* 11 *global* channels, the same on every voxel of a latent frame: which of the three shapes it shows, the object's
  place (x, y) and its size in this frame; the frame's time; and, the same in every frame of the clip, where the object
  starts (x, y) and in which direction it moves then.
* 6 *near* channels, for the voxels about the object: that it is there, the way to its centre in x and y, its colour.
* 7 *pixel* channels: principal components of the voxel's pixels, scaled by the square root of their share of the
  variance (at least `FLOOR`), so that the coarse structure is learned first.

The first two are the *layout*. What many voxels agree on stands out of the noise first, and the sooner the larger it
is. The amplitudes make a sampler settle, one after the other, when a frame is and how the motion begins, where that
puts the object, and its picture. Each follows from the one before and the prompt, so that a small DiT learns in minutes
what frames would need days to discover from each other's pixels. Joint diffusion of such features with pixel latents is
known to speed up the training of DiTs (ReDi, arXiv:2504.16064). A convolutional encoder cannot see a whole frame from
each voxel, nor a clip from one frame; what it gives of the global channels is their *seen* form: shape and size only,
near the object only.

Audio, 32 channels per 25 ms and stereo side: the loudness of each of the three timbres, spread over all channels by a
fixed orthogonal matrix.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from .render import PICTURE_SIDE, SAMPLE_RATE, coverage, pan_gains, paths, scene_colours, scene_coverage
from .world import FPS, SHAPES, SIZES, Scene, beginning

CHANNELS, LAYOUT, GLOBAL = 24, 17, 11
PIXEL = CHANNELS - LAYOUT
PATCH, PATCH_TIME, CHUNK = 16, 4, 17
PLACES = slice(3, 5)  # the channels that tell the object's place
FLOOR = 0.15
GAIN = 2.5  # brings the latents' mean square to about one, the variance of the noise
FIRST, PLACE = 1.3, 0.8  # deviations of the global channels: what is to be settled first, and what follows from it
AUDIO_CHANNELS, AUDIO_HOP = 32, 800
IMAGE_MEAN, IMAGE_STD = torch.tensor((0.485, 0.456, 0.406)), torch.tensor((0.229, 0.224, 0.225))


def latent_frame_groups(num_frames: int) -> torch.Tensor:
    """The four frames that each latent frame covers, (L, 4); the lone first frame of a chunk is repeated."""
    groups = []
    for start in range(0, num_frames, CHUNK):
        groups.append([start] * PATCH_TIME)
        for first in range(start + 1, min(start + CHUNK, num_frames), PATCH_TIME):
            groups.append([first + k for k in range(PATCH_TIME)])
    return torch.tensor(groups)


def normalise_pixels(frames: torch.Tensor) -> torch.Tensor:
    """RGB in [0, 1], channels last, to the VAE's own pixel space."""
    return (frames - IMAGE_MEAN) / IMAGE_STD


def patchify(frames: torch.Tensor) -> torch.Tensor:
    """(B, 4 L, H, W, C) to (B, L, H/16, W/16, C * 1024), each patch in the decoder's order (channel, t, y, x)."""
    batch, frame_count, height, width, channels = frames.shape
    blocks = frames.reshape(batch, frame_count // 4, 4, height // PATCH, PATCH, width // PATCH, PATCH, channels)
    return blocks.permute(0, 1, 3, 5, 7, 2, 4, 6).flatten(4)


@dataclass(frozen=True)
class Basis:
    """The principal components of the world's pixel patches: `mean` (3072,), `components` (7, 3072), `std` (7,)."""

    mean: torch.Tensor
    components: torch.Tensor
    std: torch.Tensor

    @property
    def scale(self) -> torch.Tensor:
        """What each of the 24 raw channels is multiplied by before the DiT sees it, (24,)."""
        return GAIN * torch.cat([torch.ones(LAYOUT), (self.std / self.std[0]).clamp(min=FLOOR)])

    def project(self, patches: torch.Tensor) -> torch.Tensor:
        """Pixel patches (..., 3072) to whitened components (..., 7)."""
        return (patches - self.mean) @ self.components.T / self.std

    def reconstruct(self, whitened: torch.Tensor) -> torch.Tensor:
        """The inverse of `project`, up to the components that were dropped."""
        return whitened * self.std @ self.components + self.mean


def fit_basis(patches: torch.Tensor) -> Basis:
    """Principal components of (N, 3072) patches."""
    mean = patches.mean(0)
    _, singular, components = torch.linalg.svd(patches - mean, full_matrices=False)
    std = singular[:PIXEL] / patches.shape[0] ** 0.5
    return Basis(mean, components[:PIXEL].contiguous(), std)


def layout_channels(
    scenes: Sequence[Scene],
    seconds: torch.Tensor,
    x: torch.Tensor,
    y: torch.Tensor,
    r: torch.Tensor,
    grid: Sequence[int],
) -> torch.Tensor:
    """The 17 layout channels on a `grid` of (rows, columns): (B, L, rows, columns, 17).

    `seconds`, and `x`, `y`, `r` in pixels, are (B, L).
    """
    rows, columns = grid
    middle_x, middle_y = columns * PATCH / 2.0, rows * PATCH / 2.0
    seconds, x, y, r = (value[..., None, None] for value in (seconds, x, y, r))
    dx = x - (torch.arange(columns) + 0.5) * PATCH
    dy = y - ((torch.arange(rows) + 0.5) * PATCH)[:, None]
    near = torch.sigmoid((1.25 * r + 8.0 - (dx * dx + dy * dy).sqrt()) / 4.0)

    def per_clip(values: Iterable[float]) -> torch.Tensor:
        return torch.tensor(list(values))[:, None, None, None]

    kinds = [per_clip(float(scene.shape == shape) for scene in scenes) * 1.5 - 0.5 for shape in SHAPES]
    place = [PLACE * (x - middle_x) / 28.0, PLACE * (y - middle_y) / 12.0]
    when = FIRST * 2.2 * (torch.log1p(seconds / 2.0) - 0.85)
    from_x, from_y, head_x, head_y = (per_clip(values) for values in zip(*map(beginning, scenes), strict=True))
    begin = [(from_x - middle_x) / 28.0, (from_y - middle_y) / 12.0, 1.5 * head_x, 1.5 * head_y]
    everywhere = [*kinds, *place, (r - 18.0) / 4.0, when, *(FIRST * value for value in begin)]
    offsets = [near * (d / 16.0).clamp(-2.0, 2.0) for d in (dx, dy)]
    colour = scene_colours(scenes)[0]
    rgb = [3.0 * near * (colour[:, k] - 0.5).view(-1, 1, 1, 1) for k in range(3)]
    return torch.stack([*(v.expand_as(near) for v in everywhere), 2.0 * near - 0.5, *offsets, *rgb], dim=-1)


def seen(latents: torch.Tensor) -> torch.Tensor:
    """What the encoder makes of latents (..., 24): shape and size fade away from the object, the rest of the global
    channels is 0."""
    near = (latents[..., GLOBAL : GLOBAL + 1] + 0.5) / 2.0
    kept = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    return torch.cat([latents[..., :GLOBAL] * near * kept, latents[..., GLOBAL:]], dim=-1)


def scene_latents(scenes: Sequence[Scene], groups: torch.Tensor, basis: Basis) -> torch.Tensor:
    """Raw latents (B, L, rows, columns, 24) of the latent frames that cover `groups` (L, 4) or (B, L, 4) of frames.

    The pixels are background + coverage * (colour - background), so the components of the coverage alone, one set
    per colour channel, give those of the pixels without rendering three channels.
    """
    groups = groups.expand(len(scenes), -1, -1) if groups.ndim == 2 else groups
    cover = scene_coverage(scenes, groups.flatten(1) / FPS)
    seconds = groups.float().mean(-1) / FPS
    return _latents(scenes, cover, seconds, *paths(scenes, seconds), basis)


def still_latents(
    scenes: Sequence[Scene], x: torch.Tensor, y: torch.Tensor, r: torch.Tensor, basis: Basis
) -> tuple[torch.Tensor, torch.Tensor]:
    """Raw latents (B, 1, 6, 6, 24) and coverage (B, 1, 96, 96) of square pictures; `x`, `y`, `r` (B, 1) in pixels."""
    shape = torch.tensor([SHAPES.index(scene.shape) for scene in scenes])
    cover = coverage(shape, x, y, r, (PICTURE_SIDE, PICTURE_SIDE))
    cover_all = cover.expand(-1, PATCH_TIME, -1, -1)
    return _latents(scenes, cover_all, torch.zeros_like(x), x, y, r, basis), cover


def picture_latents(scenes: Sequence[Scene], basis: Basis) -> torch.Tensor:
    """Raw latents (B, 1, 6, 6, 24) of the reference pictures of `render_picture`."""
    radius = torch.tensor([[SIZES[scene.size]] for scene in scenes])
    centre = torch.full_like(radius, PICTURE_SIDE / 2)
    return still_latents(scenes, centre, centre, radius, basis)[0]


def _latents(
    scenes: Sequence[Scene],
    cover: torch.Tensor,
    seconds: torch.Tensor,
    x: torch.Tensor,
    y: torch.Tensor,
    r: torch.Tensor,
    basis: Basis,
) -> torch.Tensor:
    """Raw latents from the coverage (B, 4 L, H, W), and the times and path of the object (B, L)."""
    blocks = patchify(cover[..., None])  # (B, L, rows, columns, 1024)
    area = PATCH_TIME * PATCH * PATCH
    axes = basis.components.view(PIXEL, 3, area)
    colour, background = scene_colours(scenes)
    contrast = (colour - background) / IMAGE_STD
    flat = normalise_pixels(background)[:, :, None].expand(-1, -1, area).flatten(1)
    per_colour = blocks @ axes.permute(2, 1, 0).flatten(1)  # (..., 3 * 7)
    pixel = (per_colour.unflatten(-1, (3, PIXEL)) * contrast[:, None, None, None, :, None]).sum(-2)
    pixel = pixel / basis.std + basis.project(flat)[:, None, None, None]
    return torch.cat([layout_channels(scenes, seconds, x, y, r, blocks.shape[2:4]), pixel], dim=-1)


def audio_mixing() -> torch.Tensor:
    """The fixed matrix (3, 32) that spreads three loudnesses over the audio channels."""
    generator = torch.Generator().manual_seed(32)
    rows = torch.linalg.qr(torch.randn(AUDIO_CHANNELS, 3, generator=generator))[0].T
    return rows * AUDIO_CHANNELS**0.5


def audio_latents(scenes: Sequence[Scene], num_latents: int, start: int = 0) -> torch.Tensor:
    """Raw audio latents (B, 2, T, 32) for the latents `start` .. `start + num_latents`."""
    middle = (torch.arange(start, start + num_latents) + 0.5) * (AUDIO_HOP / SAMPLE_RATE)
    mixing = audio_mixing()
    sides = [4.0 * (pan_gains(scene, middle) - 0.2)[..., None] * mixing[SHAPES.index(scene.shape)] for scene in scenes]
    return torch.stack(sides)
