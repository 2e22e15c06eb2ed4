"""Train the two halves of the embedded model's video VAE, each alone: their meeting point, the latents, is given.

The decoder learns pixels from latents with noise on them, so that it forgives a DiT's small errors; the encoder learns
to reproduce the latents of frames and pictures.
"""

from pathlib import Path

import torch
from diffusers import AutoencoderKLMiniMaxH3
from diffusers.models.autoencoders.autoencoder_kl_minimax_h3 import MiniMaxH3VideoCausalConv3d
from safetensors import safe_open
from safetensors.torch import save_file
from torch.nn import functional as F

from .latents import (
    CHANNELS,
    IMAGE_STD,
    LAYOUT,
    Basis,
    fit_basis,
    latent_frame_groups,
    normalise_pixels,
    patchify,
    scene_latents,
    still_latents,
)
from .render import PICTURE_SIDE, paint, render
from .trainer import Trainer
from .world import FPS, random_scene

NOISE = 0.375
WINDOW = latent_frame_groups(22)  # seven latent frames: what the VAE decodes at a time


def make_basis(path: Path) -> Basis:
    """Fit the pixel basis on 1,500 random latent frames and store it."""
    generator = torch.Generator().manual_seed(1)
    groups = latent_frame_groups(124)
    patches = []
    for _ in range(15):
        scenes = [random_scene(generator) for _ in range(50)]
        picked = groups[torch.randint(len(groups), (50, 2), generator=generator)].flatten(1)
        patches.append(patchify(normalise_pixels(render(scenes, picked / FPS))).flatten(0, 3))
    everything = torch.cat(patches)
    basis = fit_basis(everything[torch.randperm(len(everything), generator=generator)[:16_000]])
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({"mean": basis.mean, "components": basis.components, "std": basis.std}, path)
    return basis


def load_basis(path: Path) -> Basis:
    with safe_open(path, "pt") as file:
        return Basis(*(file.get_tensor(name) for name in ("mean", "components", "std")))


def start_at_basis(vae: AutoencoderKLMiniMaxH3, basis: Basis, level: float = 1.5) -> None:
    """Set the decoder so that, without its blocks, it inverts the basis: training then only adds what that lacks.

    The channels that carry no latent hold +-`level`, which keeps the final LayerNorm's variance, and with it the
    linear path, nearly constant.
    """
    decoder = vae.decoder
    width = decoder.proj_in.out_features
    with torch.no_grad():
        vae.post_quant_conv.weight.copy_(torch.eye(CHANNELS)[:, :, None, None, None])
        vae.post_quant_conv.bias.zero_()
        decoder.proj_in.weight.mul_(0.3)
        decoder.proj_in.weight[:CHANNELS] = torch.eye(CHANNELS)
        decoder.proj_in.weight[width // 2 :].zero_()
        decoder.proj_in.bias.zero_()
        decoder.proj_in.bias[width // 2 :] = level * torch.tensor([1.0, -1.0]).repeat(width // 4)
        decoder.proj_out.weight.mul_(0.3)
        decoder.proj_out.weight[:, :CHANNELS] = 0.0
        decoder.proj_out.weight[:, LAYOUT:CHANNELS] = (basis.components * basis.std[:, None]).T * 1.2
        decoder.proj_out.bias.copy_(basis.mean)
        for block in decoder.transformer_blocks:
            block.scale1.fill_(0.1)
            block.scale2.fill_(0.1)


def train_decoder(vae: AutoencoderKLMiniMaxH3, basis: Basis, path: Path, minutes: float) -> None:
    """L1 + 2 MSE on windows of 22 frames, with noise of 0 to `NOISE` (in the DiT's units) on the latents."""
    vae.encoder.requires_grad_(False)
    vae.quant_conv.requires_grad_(False)
    start_at_basis(vae, basis)
    trainer = Trainer(vae, path, lr=1.5e-3)
    generator = torch.Generator().manual_seed(100 + trainer.step)

    def batch_loss(done: float) -> dict[str, torch.Tensor]:
        scenes = [random_scene(generator) for _ in range(3)]
        groups = WINDOW[None] + 17 * torch.randint(0, 20, (3, 1, 1), generator=generator)
        latents = scene_latents(scenes, groups, basis)
        strength = NOISE * torch.rand(3, 1, 1, 1, 1, generator=generator)
        latents = latents + strength * torch.randn(latents.shape, generator=generator) / basis.scale
        target = normalise_pixels(render(scenes, groups.flatten(1) / FPS)).permute(0, 4, 1, 2, 3)
        error = vae.decoder(vae.post_quant_conv(latents.permute(0, 4, 1, 2, 3))) - target
        psnr = -10.0 * torch.log10((error.permute(0, 2, 3, 4, 1) * IMAGE_STD).square().mean())
        return {"l1": error.abs().mean(), "mse": 2.0 * error.square().mean(), "_psnr": psnr}

    trainer.run("decoder", minutes, batch_loss)


def _folded_forward(conv: MiniMaxH3VideoCausalConv3d):
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


def _pictures(generator: torch.Generator, count: int, basis: Basis) -> tuple[torch.Tensor, torch.Tensor]:
    """Square pictures (B, 1, 96, 96, 3) of objects of any size anywhere, and their raw latents."""
    scenes = [random_scene(generator, held_out=None) for _ in range(count)]
    r = 12.0 + 14.0 * torch.rand(count, 1, generator=generator)
    room = PICTURE_SIDE / 2 - 1.1 * r
    x, y = (PICTURE_SIDE / 2 + room * (2.0 * torch.rand(count, 1, generator=generator) - 1.0) for _ in range(2))
    latents, cover = still_latents(scenes, x, y, r, basis)
    return paint(scenes, cover), latents


def train_encoder(vae: AutoencoderKLMiniMaxH3, basis: Basis, path: Path, minutes: float) -> None:
    """Squared error of the latents (in the DiT's units) of keyframes, square pictures and 17-frame clips."""
    vae.requires_grad_(False)
    vae.encoder.requires_grad_(True)
    for module in vae.encoder.modules():
        if isinstance(module, MiniMaxH3VideoCausalConv3d):
            module.forward = _folded_forward(module)
    trainer = Trainer(vae.encoder, path, lr=2e-3, average=0.995)
    generator = torch.Generator().manual_seed(200 + trainer.step)
    chunk = latent_frame_groups(17)

    def batch_loss(done: float) -> dict[str, torch.Tensor]:
        kind = ("frame", "picture", "frame", "picture", "clip")[trainer.step % 5]
        if kind == "picture":
            frames, latents = _pictures(generator, 24, basis)
        else:
            count = 16 if kind == "frame" else 2
            scenes = [random_scene(generator, held_out=None) for _ in range(count)]
            first = torch.randint(0, 340, (count, 1, 1), generator=generator)
            groups = first.expand(-1, 1, 4) if kind == "frame" else chunk[None] + first
            latents = scene_latents(scenes, groups, basis)
            frames = render(scenes, (first[:, 0] + torch.arange(1 if kind == "frame" else 17)) / FPS)
        frames = (frames + 0.01 * torch.randn(frames.shape, generator=generator)).clamp(0.0, 1.0)
        encoded = vae.encoder(normalise_pixels(frames).permute(0, 4, 1, 2, 3))[:, :CHANNELS].permute(0, 2, 3, 4, 1)
        return {kind: ((encoded - latents) * basis.scale).square().mean()}

    trainer.run("encoder", minutes, batch_loss)


def finish_encoder(vae: AutoencoderKLMiniMaxH3) -> None:
    """Make the posterior's mean the encoder's first 24 outputs and its variance next to nothing."""
    with torch.no_grad():
        vae.quant_conv.weight.zero_()
        vae.quant_conv.bias.zero_()
        vae.quant_conv.weight[:CHANNELS, :CHANNELS] = torch.eye(CHANNELS)[:, :, None, None, None]
        vae.quant_conv.bias[CHANNELS:] = -30.0
