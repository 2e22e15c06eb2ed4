"""Train the embedded model's audio VAE: the decoder turns loudnesses into tones, the encoder reads them back.

Every pitch has a whole number of periods per latent, so a latent fully determines its 25 ms of waveform.
"""

from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKLMiniMaxH3Audio

from .latents import AUDIO_HOP, audio_mixing
from .render import LOUDNESS, TIMBRES, tone
from .trainer import Trainer
from .world import SHAPES

SECONDS = 0.25


def _batch(generator: torch.Generator, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Latents (B, 32, T) and waveforms (B, 1, T * 800) of tones whose loudness glides."""
    length = round(SECONDS * 40)
    shapes = torch.randint(len(TIMBRES), (count,), generator=generator)
    ends = LOUDNESS * torch.rand(count, 2, generator=generator)
    share = (torch.arange(length * AUDIO_HOP) + 0.5) / (length * AUDIO_HOP)
    gains = ends[:, :1] + (ends[:, 1:] - ends[:, :1]) * share
    tones = torch.stack([tone(shape, length * AUDIO_HOP) for shape in SHAPES])
    middle = gains[:, AUDIO_HOP // 2 :: AUDIO_HOP]
    latents = 4.0 * (middle - 0.2)[..., None] * audio_mixing()[shapes][:, None]
    return latents.transpose(1, 2), (gains * tones[shapes])[:, None]


def train_audio_vae(vae: AutoencoderKLMiniMaxH3Audio, path: Path, minutes: float) -> None:
    """Decoder: squared error of the waveform from noisy latents. Encoder: squared error of the latents."""
    logs: Any = vae.logs_proj
    logs.requires_grad_(False)
    with torch.no_grad():
        logs.weight.zero_()
        logs.bias.fill_(-10.0)
    trainer = Trainer(vae, path, lr=3e-3, average=0.99, weight_decay=0.0)
    generator = torch.Generator().manual_seed(300 + trainer.step)

    def batch_loss(done: float) -> dict[str, torch.Tensor]:
        latents, waves = _batch(generator, 8)
        noisy = latents + 0.15 * torch.randn(latents.shape, generator=generator)
        decoded = vae.decoder(vae.dec_in_proj(noisy))
        encoded: Any = vae.encode(waves)
        mean = encoded.latent_dist.mean
        return {
            "wave": (decoded - waves).square().mean() / (LOUDNESS**2 / 8),
            "latent": (mean - latents).square().mean(),
        }

    trainer.run("audio", minutes, batch_loss)
