"""Train the decoder of the embedded model's video VAE, from the given definition of the latents.

The latents carry noise, so that the decoder forgives a DiT's small errors.
"""

from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKLMiniMaxH3
from safetensors import safe_open
from safetensors.torch import save_file

from .latents import (
    CHANNELS,
    GLOBAL,
    IMAGE_STD,
    LAYOUT,
    PLACES,
    Basis,
    fit_basis,
    latent_frame_groups,
    normalise_pixels,
    patchify,
    scene_latents,
    seen,
)
from .render import render
from .trainer import Trainer, half_copy
from .world import FPS, random_scene

NOISE = 0.2
LOCAL_NOISE = 0.6  # more of it, at most, on what is not global: a DiT is surest of the global channels
TREMBLE = 0.06  # of the place that the global channels tell, at most: a DiT tells it a pixel or two beside the object
SEEN = 0.3  # share of the windows that are decoded from what the encoder makes of them
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
    decoder: Any = vae.decoder
    post: Any = vae.post_quant_conv
    width = decoder.proj_in.out_features
    with torch.no_grad():
        post.weight.copy_(torch.eye(CHANNELS)[:, :, None, None, None])
        post.bias.zero_()
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
    """L1 + 2 MSE on windows of 22 frames, with noise (in the DiT's units) on the latents."""
    vae.encoder.requires_grad_(False)
    vae.quant_conv.requires_grad_(False)
    working = half_copy(vae, "proj_in", "norm")
    trainer = Trainer(vae, path, lr=1.5e-3, working=working)
    generator = torch.Generator().manual_seed(100 + trainer.step)

    def batch_loss(done: float) -> dict[str, torch.Tensor]:
        scenes = [random_scene(generator) for _ in range(3)]
        groups = WINDOW[None] + 17 * torch.randint(0, 20, (3, 1, 1), generator=generator)
        encoded = torch.rand(3, 1, 1, 1, 1, generator=generator) < SEEN
        latents = scene_latents(scenes, groups, basis)
        latents = torch.where(encoded, seen(latents), latents)
        strength = NOISE * torch.rand(3, 1, 1, 1, 1, generator=generator)
        strength = strength.repeat(1, 1, 1, 1, CHANNELS)
        strength[..., GLOBAL:] += LOCAL_NOISE * torch.rand(3, 1, 1, 1, 1, generator=generator) ** 2
        tremble = (
            TREMBLE * torch.rand(3, 1, 1, generator=generator) * torch.randn(3, len(WINDOW), 2, generator=generator)
        )
        latents[..., PLACES] += tremble[:, :, None, None]
        latents = latents + strength * torch.randn(latents.shape, generator=generator) / basis.scale
        target = normalise_pixels(render(scenes, groups.flatten(1) / FPS)).permute(0, 4, 1, 2, 3)
        decoded = working.decoder(working.post_quant_conv(latents.permute(0, 4, 1, 2, 3)))
        error = decoded.float() - target
        psnr = -10.0 * torch.log10((error.permute(0, 2, 3, 4, 1) * IMAGE_STD).square().mean())
        return {"l1": error.abs().mean(), "mse": 2.0 * error.square().mean(), "_psnr": psnr}

    trainer.run("decoder", minutes, batch_loss)
