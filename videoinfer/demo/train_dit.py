"""Train the embedded model's DiT, one set of weights for all three workflows.

As video models are: first single latent frames at their true time, then eight frames spread over the clip, then whole
clips with their whole soundtrack, the last of them also at 209 and 362 frames. Targets are the latents' definition
(`latents.py`), so no VAE is needed.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from diffusers import MiniMaxH3Transformer3DModel

from .latents import Basis
from .packing import Layout, packed_velocity, patch_rows, share_packed_attention
from .train_conditions import TextStates
from .train_examples import ExamplePool
from .trainer import Trainer, half_copy

VIDEO_SHIFT, AUDIO_SHIFT = 12.0, 3.0
FURTHER = 0.45  # a DiT that is trained further begins here, past the single frames, at half the learning rate
AUDIO_WEIGHT = 0.2


@dataclass(frozen=True)
class Stage:
    """What is trained on of each example: how many `clips` (0: all), how many samples of each clip (`repeat`), how many
    latent `frames` (0: all) and `audio` latents per side (0: all) of each sample."""

    clips: int
    repeat: int
    frames: int
    audio: int
    strides: tuple[int, ...]
    num_frames: tuple[int, ...]
    shift: float


SINGLE = Stage(0, 3, 1, 6, (1,), (124, 124, 124, 209, 362), 4.0)
SPREAD = Stage(0, 1, 8, 10, (1, 2, 4, 5), (124, 124, 124, 209, 362), 6.0)
WHOLE = Stage(2, 1, 0, 0, (1,), (124,), 8.0)
LONG = Stage(1, 1, 0, 0, (1,), (209, 362), 8.0)


def stage_at(done: float, step: int) -> Stage:
    """The stage after the share `done` of the training time; stages alternate where one would be forgotten."""
    if done < 0.15:
        return SINGLE
    if done < 0.45:
        return SINGLE if step % 2 == 0 else SPREAD
    if done < 0.9:
        return (WHOLE, SPREAD, WHOLE, SINGLE)[step % 4]
    return (WHOLE, SPREAD, WHOLE, LONG)[step % 4]


def draw_picks(
    stage: Stage, batch: int, layout: Layout, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Which latent frames (B, F) and audio latents (B, A) of each clip are trained on."""
    all_frames, all_audio = len(layout.video), layout.audio.shape[1]
    if not stage.frames:
        return torch.arange(all_frames).expand(batch, -1), torch.arange(all_audio).expand(batch, -1)
    rows, audio_rows = [], []
    for _ in range(batch):
        stride = stage.strides[int(torch.randint(len(stage.strides), (), generator=generator))]
        stride = min(stride * (2 if all_frames > 60 and stage.frames > 1 else 1), (all_frames - 1) // stage.frames)
        first = int(torch.randint(all_frames - stride * (stage.frames - 1), (), generator=generator))
        frames = first + stride * torch.arange(stage.frames)
        rows.append(frames)
        # Audio latents spread over the same stretch of time.
        start, end = (float(layout.video[k, 0, 0] - layout.video[0, 0, 0]) for k in (frames[0], frames[-1]))
        spread = torch.linspace(start, end + 6.0, stage.audio).floor().long()
        audio_rows.append(spread.clamp(max=all_audio - 1))
    return torch.stack(rows), torch.stack(audio_rows)


def draw_times(shift: float, batch: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Sigmas of the video and audio rows (B,), at one point of the two schedules, stratified over the batch."""
    uniform = (torch.arange(batch) + torch.rand(batch, generator=generator)) / batch
    uniform = torch.remainder(uniform + torch.rand((), generator=generator), 1.0)
    video = shift * uniform / (1.0 + (shift - 1.0) * uniform)
    base = video / (VIDEO_SHIFT - (VIDEO_SHIFT - 1.0) * video)  # the unshifted grid point of that video sigma
    return video, AUDIO_SHIFT * base / (1.0 + (AUDIO_SHIFT - 1.0) * base)


def batch_loss(
    dit: MiniMaxH3Transformer3DModel, stage: Stage, pool: ExamplePool, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean squared error of the velocity of one batch, of video and of audio."""
    example = pool.draw(stage.num_frames[int(torch.randint(len(stage.num_frames), (), generator=generator))])
    clips = torch.randperm(len(example.video), generator=generator)[: stage.clips or None].repeat(stage.repeat)
    batch, layout = len(clips), example.given.layout
    frames, audio_picks = draw_picks(stage, batch, layout, generator)
    video = patch_rows(example.video[clips[:, None], frames].float())
    audio = example.audio[clips[:, None], :, audio_picks].float().transpose(1, 2).flatten(1, 2)
    sigma_video, sigma_audio = draw_times(stage.shift, batch, generator)
    noise, audio_noise = (torch.randn(rows.shape, generator=generator) for rows in (video, audio))
    noisy, noisy_audio = (
        torch.lerp(clean, n, sigma[:, None, None])
        for clean, n, sigma in ((video, noise, sigma_video), (audio, audio_noise, sigma_audio))
    )
    velocity, audio_velocity = packed_velocity(
        dit,
        layout,
        frames,
        audio_picks,
        example.given.text[clips],
        example.given.rows[clips],
        noisy,
        noisy_audio,
        1.0 - sigma_video,
        1.0 - sigma_audio,
    )
    return (velocity - (video - noise)).square().mean(), (audio_velocity - (audio - audio_noise)).square().mean()


def start_dit(dit: MiniMaxH3Transformer3DModel) -> None:
    """AdaLN-zero: every block starts as the identity, every head at zero."""
    blocks: Any = dit.transformer_blocks
    with torch.no_grad():
        for block in blocks:
            block.adaln_proj.linear.weight.zero_()
            block.adaln_proj.linear.bias.zero_()
        dit.norm_out.linear.weight.zero_()
        dit.norm_out.linear.bias.zero_()
        for head in (dit.proj_out, dit.audio_proj_out):
            head.weight.zero_()
            head.bias.zero_()


def train_dit(
    dit: MiniMaxH3Transformer3DModel, states: TextStates, basis: Basis, path: Path, minutes: float, further: bool
) -> None:
    """Train until `minutes` are spent in all, from the checkpoint at `path` or else from the DiT as it is given.

    `further`: the given DiT is a trained one. Forward and backward run on a bfloat16 copy.
    """
    working = half_copy(dit)
    share_packed_attention(working)
    trainer = Trainer(dit, path, lr=1e-3 if further else 2e-3, average=0.998, working=working)
    generator = torch.Generator().manual_seed(1000 + trainer.step)
    pool = ExamplePool(states, basis, generator)
    begin = FURTHER if further else 0.0

    def losses(done: float) -> dict[str, torch.Tensor]:
        done = begin + (1.0 - begin) * done
        video, audio = batch_loss(working, stage_at(done, trainer.step), pool, generator)
        return {"video": video, "audio": AUDIO_WEIGHT * audio}

    trainer.run("dit", minutes, losses)
