"""Train the embedded model's DiT, one set of weights for all three workflows.

As video models are: first single latent frames at their true time, then eight frames spread over the clip, then whole
clips with their whole soundtrack, the last of them also at 209 and 362 frames. Scenes are drawn afresh for every batch;
held-out combinations of words never appear. Targets are the latents' definition (`latents.py`), so no VAE is needed.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from diffusers import MiniMaxH3Transformer3DModel

from .latents import (
    AUDIO_HOP,
    Basis,
    audio_latents,
    latent_frame_groups,
    picture_latents,
    scene_latents,
)
from .packing import Layout, packed_velocity, patch_rows, pipeline_layout, prompt_ids, share_packed_attention
from .render import SAMPLE_RATE, render, render_picture
from .trainer import Trainer
from .world import BACKGROUNDS, FPS, FRAME_TEMPLATES, REFERENCE_TEMPLATES, TEMPLATES, Scene, random_scene

WORKFLOWS = ("t2va", "t2va", "fl2va", "ref2va")
VIDEO_SHIFT, AUDIO_SHIFT = 12.0, 3.0
AUDIO_WEIGHT = 0.2
ENCODER_ERROR = 0.12  # what the conditioning latents of the trained encoder are off by, in the DiT's units


@dataclass(frozen=True)
class Stage:
    """How a batch is made: clips, `frames` latent frames of each (0: all), `audio` latents per side (0: all).

    `conditioned` is the share of `batch` that is left where there are conditioning rows.
    """

    batch: int
    frames: int
    audio: int
    strides: tuple[int, ...]
    num_frames: tuple[int, ...]
    shift: float
    conditioned: float


SINGLE = Stage(48, 1, 6, (1,), (124, 124, 209, 362), 2.0, 0.5)
SPREAD = Stage(14, 8, 10, (1, 2, 4, 5), (124, 124, 124, 209, 362), 3.0, 0.6)
WHOLE = Stage(2, 0, 0, (1,), (124,), 4.0, 1.0)
LONG = Stage(1, 0, 0, (1,), (209, 362), 4.0, 1.0)


def stage_at(done: float, step: int) -> Stage:
    """The stage after the share `done` of the training time; stages alternate where one would be forgotten."""
    if done < 0.12:
        return SINGLE
    if done < 0.65:
        return SINGLE if step % 8 == 0 else SPREAD
    if done < 0.9:
        return SPREAD if step % 2 == 0 else WHOLE
    return (WHOLE, SPREAD, WHOLE, LONG)[step % 4]


@dataclass(frozen=True)
class Conditioning:
    """What a batch is conditioned on: text states (B, N, width) and rows of pictures (B, C, 96), with the layout."""

    text: torch.Tensor
    rows: torch.Tensor
    layout: Layout


class TextStates:
    """The frozen conditioner's hidden states; those of plain prompts are remembered."""

    def __init__(self, text_encoder, tokenizer, processor):
        self.model, self.tokenizer, self.processor = text_encoder, tokenizer, processor
        self.known: dict[tuple[int, ...], torch.Tensor] = {}

    @torch.no_grad()
    def _run(self, ids: list[list[int]], **vision) -> torch.Tensor:
        types = torch.tensor(self.processor.create_mm_token_type_ids(ids))
        tokens = torch.tensor(ids)
        outputs = self.model.model(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            mm_token_type_ids=types,
            use_cache=False,
            output_hidden_states=True,
            **vision,
        )
        return outputs.hidden_states[50].float()

    def plain(self, prompts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """States (B, N, width) and tags (N,) of prompts of equal length in tokens."""
        ids = [prompt_ids(self.tokenizer, prompt, ())[0] for prompt in prompts]
        fresh = sorted({tuple(row) for row in ids} - self.known.keys())
        if fresh:
            for row, states in zip(fresh, self._run([list(row) for row in fresh]), strict=True):
                self.known[row] = states
        return torch.stack([self.known[tuple(row)] for row in ids]), torch.ones(len(ids[0]), dtype=torch.long)

    def with_pictures(self, prompts: list[str], pictures: list[list]) -> tuple[torch.Tensor, torch.Tensor]:
        """As `plain`, behind the pictures (arrays or PIL images, equally many and large) of each prompt."""
        flat = [picture for row in pictures for picture in row]
        vision = self.processor.image_processor(images=flat, return_tensors="pt")
        merge = self.processor.image_processor.merge_size**2
        tokens = [int(grid.prod()) // merge for grid in vision["image_grid_thw"][: len(pictures[0])]]
        rows = [prompt_ids(self.tokenizer, prompt, tokens) for prompt in prompts]
        states = self._run(
            [ids for ids, _ in rows], pixel_values=vision["pixel_values"], image_grid_thw=vision["image_grid_thw"]
        )
        return states, torch.tensor(rows[0][1])


def condition(
    workflow: str, scenes: list[Scene], num_frames: int, states: TextStates, basis: Basis, generator: torch.Generator
) -> Conditioning:
    """What the pipeline would condition a batch of one workflow on, for prompts drawn from the templates."""

    def pick(choices):
        return choices[int(torch.randint(len(choices), (), generator=generator))]

    groups = latent_frame_groups(num_frames)
    audio = round(num_frames / FPS * SAMPLE_RATE / AUDIO_HOP)
    if workflow == "t2va":
        template = pick(TEMPLATES)
        text, tags = states.plain([scene.prompt(template) for scene in scenes])
        return Conditioning(text, torch.zeros(len(scenes), 0, 96), pipeline_layout(tags, len(groups), audio, (), 0))
    if workflow == "fl2va":
        anchors = pick((("first",), ("first",), ("last",), ("first", "last")))
        template = pick(FRAME_TEMPLATES)
        moments = [0 if anchor == "first" else num_frames - 1 for anchor in anchors]
        stills = torch.tensor([[moment] * 4 for moment in moments])
        latents = scene_latents(scenes, stills, basis)
        frames = (render(scenes, torch.tensor(moments) / FPS) * 255.0).round().to(torch.uint8).numpy()
        text, tags = states.with_pictures([scene.prompt(template) for scene in scenes], [list(row) for row in frames])
        layout = pipeline_layout(tags, len(groups), audio, anchors, 0)
    else:
        template = pick(REFERENCE_TEMPLATES)
        shown = [Scene(s.size, s.colour, s.shape, s.motion, pick(list(BACKGROUNDS))) for s in scenes]
        latents = picture_latents(shown, basis)
        pictures = [[render_picture(scene).numpy()] for scene in shown]
        text, tags = states.with_pictures([scene.prompt(template) for scene in scenes], pictures)
        layout = pipeline_layout(tags, len(groups), audio, (), 1)
    clean = latents * basis.scale
    noisy = clean + ENCODER_ERROR * torch.randn(clean.shape, generator=generator)
    return Conditioning(text, patch_rows(noisy), layout)


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
    dit: MiniMaxH3Transformer3DModel, stage: Stage, states: TextStates, basis: Basis, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean squared error of the velocity of one fresh batch, of video and of audio."""
    num_frames = stage.num_frames[int(torch.randint(len(stage.num_frames), (), generator=generator))]
    workflow = WORKFLOWS[int(torch.randint(len(WORKFLOWS), (), generator=generator))]
    # Conditioning rows cost as much as generated ones: fewer clips where there are few of the latter.
    batch = stage.batch if workflow == "t2va" else max(1, round(stage.batch * stage.conditioned))
    scenes = [random_scene(generator) for _ in range(batch)]
    given = condition(workflow, scenes, num_frames, states, basis, generator)
    frames, audio_picks = draw_picks(stage, batch, given.layout, generator)
    groups = latent_frame_groups(num_frames)
    video = patch_rows(scene_latents(scenes, groups[frames], basis) * basis.scale)
    everything = audio_latents(scenes, given.layout.audio.shape[1])
    audio = torch.stack([clip[:, picks] for clip, picks in zip(everything, audio_picks, strict=True)]).flatten(1, 2)
    sigma_video, sigma_audio = draw_times(stage.shift, batch, generator)
    noise, audio_noise = (torch.randn(rows.shape, generator=generator) for rows in (video, audio))
    noisy, noisy_audio = (
        torch.lerp(clean, n, sigma[:, None, None])
        for clean, n, sigma in ((video, noise, sigma_video), (audio, audio_noise, sigma_audio))
    )
    velocity, audio_velocity = packed_velocity(
        dit,
        given.layout,
        frames,
        audio_picks,
        given.text,
        given.rows,
        noisy,
        noisy_audio,
        1.0 - sigma_video,
        1.0 - sigma_audio,
    )
    return (velocity - (video - noise)).square().mean(), (audio_velocity - (audio - audio_noise)).square().mean()


def start_dit(dit: MiniMaxH3Transformer3DModel) -> None:
    """AdaLN-zero: every block starts as the identity, every head at zero."""
    with torch.no_grad():
        for block in dit.transformer_blocks:
            block.adaln_proj.linear.weight.zero_()
            block.adaln_proj.linear.bias.zero_()
        dit.norm_out.linear.weight.zero_()
        dit.norm_out.linear.bias.zero_()
        for head in (dit.proj_out, dit.audio_proj_out):
            head.weight.zero_()
            head.bias.zero_()


def train_dit(dit: MiniMaxH3Transformer3DModel, states: TextStates, basis: Basis, path: Path, minutes: float) -> None:
    """Train until `minutes` are spent in all."""
    start_dit(dit)
    share_packed_attention(dit)
    trainer = Trainer(dit, path, lr=2e-3, average=0.998)
    generator = torch.Generator().manual_seed(1000 + trainer.step)

    def losses(done: float) -> dict[str, torch.Tensor]:
        video, audio = batch_loss(dit, stage_at(done, trainer.step), states, basis, generator)
        return {"video": video, "audio": AUDIO_WEIGHT * audio}

    trainer.run("dit", minutes, losses)
