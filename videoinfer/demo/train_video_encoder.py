"""Train the encoder of the embedded model's video VAE: it reads the latents of keyframes, pictures and clips.

Its residual path is linear from the pixels to the last norm, so it is started as what the latents mostly are, a linear
map: each strided convolution keeps the principal components of its 2 x 2 blocks. The first two levels stay so; what
the layout channels need is learned by the levels below.
"""

from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKLMiniMaxH3
from diffusers.models.autoencoders.autoencoder_kl_minimax_h3 import MiniMaxH3VideoCausalConv3d
from torch.nn import functional as F

from .latents import CHANNELS, LAYOUT, Basis, latent_frame_groups, normalise_pixels, scene_latents, seen, still_latents
from .render import PICTURE_SIDE, paint, render
from .trainer import Trainer
from .world import FPS, random_scene

FIXED_LEVELS = 2
LEVEL = 6.0  # of the constant channels before the last norm


def folded_forward(conv: MiniMaxH3VideoCausalConv3d):
    """The causal convolution as one conv2d, its time taps folded into the channels: the same sums, 3-4 times faster."""

    def forward(hidden_states: torch.Tensor) -> torch.Tensor:
        batch, _, frames = hidden_states.shape[:3]
        pad = conv.spatial_padding
        flat = hidden_states.transpose(1, 2).flatten(0, 1)
        if pad:
            flat = F.pad(flat, (pad, pad, pad, pad), mode=conv.spatial_padding_mode)
        weight = conv.weight
        if frames == 1:
            taps, weight = flat, weight[:, :, -1]  # every earlier tap sees the zero padding
        else:
            clip = flat.unflatten(0, (batch, frames))
            clip = torch.cat([clip.new_zeros(batch, conv.temporal_padding, *clip.shape[2:]), clip], 1)
            taps = clip.unfold(1, weight.shape[2], conv.stride[0]).movedim(-1, 3).flatten(2, 3).flatten(0, 1)
            weight = weight.flatten(1, 2)
        out = F.conv2d(taps, weight, conv.bias, stride=conv.stride[1:])
        return out.unflatten(0, (batch, -1)).transpose(1, 2)

    return forward


def _blocks(features: torch.Tensor) -> torch.Tensor:
    """The 2 x 2 blocks of (B, C, H, W) as (B * H/2 * W/2, C * 4), channel first, then row, then column."""
    return F.unfold(features, 2, stride=2).transpose(1, 2).flatten(0, 1)


@torch.no_grad()
def _set_taps(conv: Any, matrix: torch.Tensor, first: int = 0) -> None:
    """Write a map of 2 x 2 blocks (out, C * 4) into a 3 x 3 convolution's last time tap, from channel `first` on."""
    taps = matrix.view(len(matrix), -1, 2, 2)
    conv.weight[first : first + len(matrix), : taps.shape[1], -1, :2, :2] = taps


@torch.no_grad()
def start_encoder(vae: AutoencoderKLMiniMaxH3, basis: Basis) -> None:
    """Set the encoder to the best linear map of a frame to its pixel channels that fits through its widths.

    Before the last norm, two channels of each group hold +-`LEVEL`, so that the norm hardly depends on the picture; the
    others come in pairs +a, -a, since silu(a) - silu(-a) = a.
    """
    generator = torch.Generator().manual_seed(20)
    scenes = [random_scene(generator, held_out=None) for _ in range(160)]
    moments = torch.randint(0, 340, (160, 1), generator=generator)
    frames = normalise_pixels(render(scenes, moments / FPS))[:, 0].permute(0, 3, 1, 2)
    target = scene_latents(scenes, moments[..., None].expand(-1, 1, 4), basis)[..., LAYOUT:].flatten(0, 3)
    encoder: Any = vae.encoder
    for module in encoder.modules():
        if isinstance(module, MiniMaxH3VideoCausalConv3d) and module.bias is not None:
            module.bias.zero_()
    for block in encoder.down_blocks:
        for resnet in block.resnets:
            resnet.conv2.weight.zero_()
            if resnet.conv_shortcut is not None:
                resnet.conv_shortcut.weight.zero_()
                width = resnet.conv_shortcut.in_channels
                resnet.conv_shortcut.weight[:width, :, 0, 0, 0] = torch.eye(width)
        block.downsamplers[0].conv.weight.zero_()
    encoder.conv_in.weight.zero_()
    encoder.conv_in.weight[:3, :, -1, 1, 1] = torch.eye(3)

    features = frames
    for block in encoder.down_blocks[:-1]:
        conv = block.downsamplers[0].conv
        cells = _blocks(features)
        components = torch.linalg.eigh(cells.T @ cells).eigenvectors.flip(1).T[: conv.out_channels] / 2.0
        _set_taps(conv, components)
        rows, columns = features.shape[2] // 2, features.shape[3] // 2
        features = (cells @ components.T).unflatten(0, (len(frames), rows, columns)).permute(0, 3, 1, 2)

    conv, norm = encoder.down_blocks[-1].downsamplers[0].conv, encoder.norm_out
    cells = _blocks(features)
    wanted = torch.linalg.lstsq(torch.cat([cells, torch.ones(len(cells), 1)], 1), target).solution
    spread = torch.linalg.eigh(cells.T @ cells / len(cells))
    size = conv.out_channels // norm.num_groups
    others = (spread.eigenvectors / spread.eigenvalues.clamp(min=1e-4).sqrt()).flip(1).T
    maps = torch.cat([wanted[:-1].T, others])
    shifts = torch.cat([wanted[-1], torch.zeros(len(others))])
    encoder.conv_out.weight.mul_(0.02)
    norm.weight.fill_(LEVEL * (2.0 / size) ** 0.5)
    norm.bias.zero_()
    pair = 0
    for channel in range(0, conv.out_channels, 2):
        if channel % size == 0:
            conv.bias[channel], conv.bias[channel + 1] = LEVEL, -LEVEL
            continue
        for sign, place in ((1.0, channel), (-1.0, channel + 1)):
            _set_taps(conv, sign * maps[pair : pair + 1], place)
            conv.bias[place] = sign * shifts[pair]
            if pair < len(target.T):
                encoder.conv_out.weight[LAYOUT + pair, place, -1, 1, 1] = sign
        pair += 1


def _pictures(generator: torch.Generator, count: int, basis: Basis) -> tuple[torch.Tensor, torch.Tensor]:
    """Square pictures (B, 1, 96, 96, 3) of objects of any size anywhere, and their raw latents."""
    scenes = [random_scene(generator, held_out=None) for _ in range(count)]
    r = 12.0 + 14.0 * torch.rand(count, 1, generator=generator)
    room = PICTURE_SIDE / 2 - 1.1 * r
    x, y = (PICTURE_SIDE / 2 + room * (2.0 * torch.rand(count, 1, generator=generator) - 1.0) for _ in range(2))
    latents, cover = still_latents(scenes, x, y, r, basis)
    return paint(scenes, cover), latents


def prepare_encoder(vae: AutoencoderKLMiniMaxH3) -> None:
    """Fix the first levels, whose residual branches are zero and need not run, and fold the convolutions."""
    encoder: Any = vae.encoder
    vae.requires_grad_(False)
    for part in (*encoder.down_blocks[FIXED_LEVELS:], encoder.norm_out, encoder.conv_out):
        part.requires_grad_(True)
    for block in encoder.down_blocks[:FIXED_LEVELS]:
        for resnet in block.resnets:
            resnet.forward = torch.nn.Identity() if resnet.conv_shortcut is None else resnet.conv_shortcut
    for module in encoder.modules():
        if isinstance(module, MiniMaxH3VideoCausalConv3d):
            module.forward = folded_forward(module)


def train_encoder(vae: AutoencoderKLMiniMaxH3, basis: Basis, path: Path, minutes: float) -> None:
    """Squared error of the latents (in the DiT's units) of keyframes, square pictures and 17-frame clips."""
    start_encoder(vae, basis)
    prepare_encoder(vae)
    trainer = Trainer(vae.encoder, path, lr=1.2e-3, average=0.995)
    generator = torch.Generator().manual_seed(200 + trainer.step)
    chunk = latent_frame_groups(17)

    def batch_loss(done: float) -> dict[str, torch.Tensor]:
        kind = ("frame", "picture", "frame", "picture", "clip")[trainer.step % 5]
        if kind == "picture":
            frames, latents = _pictures(generator, 40, basis)
        else:
            count = 24 if kind == "frame" else 2
            scenes = [random_scene(generator, held_out=None) for _ in range(count)]
            first = torch.randint(0, 340, (count, 1, 1), generator=generator)
            groups = first.expand(-1, 1, 4) if kind == "frame" else chunk[None] + first
            latents = scene_latents(scenes, groups, basis)
            frames = render(scenes, (first[:, 0] + torch.arange(1 if kind == "frame" else 17)) / FPS)
        frames = (frames + 0.01 * torch.randn(frames.shape, generator=generator)).clamp(0.0, 1.0)
        encoded = vae.encoder(normalise_pixels(frames).permute(0, 4, 1, 2, 3))[:, :CHANNELS].permute(0, 2, 3, 4, 1)
        error = ((encoded - seen(latents)) * basis.scale).square()
        return {kind: error.mean(), f"_{kind}_pixel": error[..., LAYOUT:].mean()}

    trainer.run("encoder", minutes, batch_loss)


def finish_encoder(vae: AutoencoderKLMiniMaxH3) -> None:
    """Make the posterior's mean the encoder's first 24 outputs and its variance next to nothing."""
    conv: Any = vae.quant_conv
    with torch.no_grad():
        conv.weight.zero_()
        conv.bias.zero_()
        conv.weight[:CHANNELS, :CHANNELS] = torch.eye(CHANNELS)[:, :, None, None, None]
        conv.bias[CHANNELS:] = -30.0
