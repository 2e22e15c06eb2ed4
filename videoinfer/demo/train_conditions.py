"""What a training batch is conditioned on: the text states and picture rows that the pipeline would make for it."""

from dataclasses import dataclass

import torch

from .latents import AUDIO_HOP, Basis, latent_frame_groups, picture_latents, scene_latents, seen
from .packing import Layout, patch_rows, pipeline_layout, prompt_ids
from .render import SAMPLE_RATE, render, render_picture
from .world import BACKGROUNDS, FPS, FRAME_TEMPLATES, REFERENCE_TEMPLATES, TEMPLATES, Scene

ENCODER_ERROR = 0.12  # what the conditioning latents of the trained encoder are off by, in the DiT's units


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
    clean = seen(latents) * basis.scale
    noisy = clean + ENCODER_ERROR * torch.randn(clean.shape, generator=generator)
    return Conditioning(text, patch_rows(noisy), layout)
