"""Many short training samples in one call of the unmodified DiT.

MiniMax-H3's forward takes one packed sequence whose rows each have their own timestep and position, so a training batch
is laid end to end as one sequence, and an attention processor keeps every sample to itself. Each sample so has its own
noise level and its own choice of latent frames, at the positions that the pipeline itself would give them.

Shapes: B samples, N text rows, C conditioning rows, A audio latents per side, F latent frames of R rows each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from diffusers.models.transformers.transformer_minimax_h3 import MiniMaxH3Transformer3DModel, _apply_rotary_emb
from diffusers.modular_pipelines.minimax_h3 import MiniMaxH3ImageReference
from diffusers.modular_pipelines.minimax_h3.before_denoise import (
    MiniMaxH3PrepareLayoutStep,
    MiniMaxH3Ref2VAPrepareLayoutStep,
)
from torch.nn import functional as F

from .world import HEIGHT, WIDTH

ROWS, COLUMNS = HEIGHT // 16, WIDTH // 16
ROWS_PER_FRAME = (ROWS // 2) * (COLUMNS // 2)
VIDEO, TEXT, AUDIO = 0, 1, 2
CONDITION_T = 0.999


class PackedAttention:
    """Self-attention within each of `samples` equal parts of the sequence."""

    _attention_backend = None
    _parallel_config = None

    def __init__(self) -> None:
        self.samples = 1

    def __call__(self, attn, hidden_states, rotary_emb=None, attention_mask=None):
        query, key, value = (
            project(hidden_states).unflatten(-1, (attn.heads, -1)) for project in (attn.to_q, attn.to_k, attn.to_v)
        )
        query, key = attn.norm_q(query), attn.norm_k(key)
        if rotary_emb is not None:
            query, key = (_apply_rotary_emb(rows, *rotary_emb) for rows in (query, key))
        query, key, value = (
            rows.unflatten(1, (self.samples, -1)).squeeze(0).transpose(1, 2) for rows in (query, key, value)
        )
        out = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2, 3).flatten(0, 1)[None]
        return attn.to_out[0](out)


def share_packed_attention(dit: MiniMaxH3Transformer3DModel) -> None:
    """Give every attention of the DiT one `PackedAttention`, so that `packed_velocity` sets its samples once."""
    processor = PackedAttention()
    processors: Any = {name: processor for name in dit.attn_processors}
    dit.set_attn_processor(processors)


def patch_rows(latents: torch.Tensor) -> torch.Tensor:
    """Latents (B, F, rows, columns, 24) to the DiT's rows (B, F * R, 96), as diffusers packs them."""
    batch, frames, rows, columns, channels = latents.shape
    cells = latents.reshape(batch, frames, rows // 2, 2, columns // 2, 2, channels)
    return cells.permute(0, 1, 2, 4, 6, 3, 5).reshape(batch, -1, channels * 4)


@dataclass(frozen=True)
class Layout:
    """Positions of one request's rows: text (N, 3), conditioning (C, 3), audio (2, A, 3), video (F, R, 3)."""

    text_tags: torch.Tensor
    text: torch.Tensor
    condition: torch.Tensor
    audio: torch.Tensor
    video: torch.Tensor


def pipeline_layout(
    text_tags: torch.Tensor, latent_frames: int, audio_latents: int, anchors: tuple[str, ...], references: int
) -> Layout:
    """The positions that diffusers' own layout steps give a request on the demo canvas.

    `anchors` are keyframes ("first", "last"); `references` counts square reference pictures of 6 x 6 latents.
    """
    geometry = (latent_frames, ROWS, COLUMNS, audio_latents, (1, 2, 2), 2, AUDIO, VIDEO)
    if references:
        picture = MiniMaxH3ImageReference(image=None)  # type: ignore[arg-type] - only its kind is read
        shape = torch.empty(1, 24, 1, ROWS, ROWS, device="meta")
        packed = MiniMaxH3Ref2VAPrepareLayoutStep.build_ref2va_packed_sequence(
            text_tags, [picture] * references, [shape] * references, [], *geometry
        )
    else:
        packed = MiniMaxH3PrepareLayoutStep.build_packed_sequence(text_tags, *geometry, anchors)
    positions, _, video, audio, text, conditions, _ = packed
    return Layout(
        text_tags,
        positions[text],
        positions[video[:conditions]],
        positions[audio].unflatten(0, (2, -1)),
        positions[video[conditions:]].unflatten(0, (-1, ROWS_PER_FRAME)),
    )


def packed_velocity(
    dit: MiniMaxH3Transformer3DModel,
    layout: Layout,
    frames: torch.Tensor,
    audio_picks: torch.Tensor,
    text: torch.Tensor,
    condition: torch.Tensor,
    video: torch.Tensor,
    audio: torch.Tensor,
    t_video: torch.Tensor,
    t_audio: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The DiT's velocities of B samples.

    `frames` (B, F) and `audio_picks` (B, A) choose latents of the layout; `text` (B, N, width), `condition` (B, C, 96),
    `video` (B, F * R, 96), `audio` (B, 2 * A, 32) are the rows; `t_video`, `t_audio` (B,) are 1 - sigma. Returns
    velocities of the shapes of `video` and `audio`.
    """
    batch = len(frames)
    positions = torch.cat(
        [
            layout.text.expand(batch, -1, -1),
            layout.condition.expand(batch, -1, -1),
            layout.audio[:, audio_picks].transpose(0, 1).flatten(1, 2),
            layout.video[frames].flatten(1, 2),
        ],
        dim=1,
    )
    counts = [layout.text.shape[0], layout.condition.shape[0], audio.shape[1], video.shape[1]]
    length = sum(counts)
    starts = [sum(counts[:k]) for k in range(4)]
    offsets = (torch.arange(batch) * length)[:, None]
    text_rows, condition_rows, audio_rows, video_rows = (
        offsets + torch.arange(start, start + count) for start, count in zip(starts, counts, strict=True)
    )
    tags = torch.empty(batch, length, dtype=torch.long)
    tags[:, : counts[0]] = layout.text_tags
    tags[:, starts[1] : starts[2]] = VIDEO
    tags[:, starts[2] : starts[3]] = AUDIO
    tags[:, starts[3] :] = VIDEO
    which = torch.arange(batch)[:, None].repeat(1, length)
    which[:, starts[2] : starts[3]] += batch
    which[:, starts[1] : starts[2]] += 2 * batch
    processor: Any = next(iter(dit.attn_processors.values()))
    processor.samples = batch
    out, out_audio = dit(
        hidden_states=torch.cat([condition, video], 1).flatten(0, 1)[None],
        audio_hidden_states=audio.flatten(0, 1)[None],
        encoder_hidden_states=text.flatten(0, 1)[None],
        timestep=torch.cat([t_video, t_audio, t_video.clamp(min=CONDITION_T)]),
        timestep_indices=which.flatten(),
        token_tags=tags.flatten(),
        position_ids=positions.flatten(0, 1),
        video_indices=torch.cat([condition_rows, video_rows], 1).flatten(),
        audio_indices=audio_rows.flatten(),
        text_indices=text_rows.flatten(),
        return_dict=False,
    )
    return out.unflatten(1, (batch, -1))[0, :, counts[1] :], out_audio.unflatten(1, (batch, -1))[0]


def prompt_ids(tokenizer, prompt: str, pictures: Sequence[int]) -> tuple[list[int], list[int]]:
    """MiniMax-H3's presentation of a prompt behind `pictures`, given by their numbers of vision tokens.

    Returns the token ids and their tags, as the pipeline's text encoder blocks make them.
    """
    ids, tags = [], []
    for number, tokens in enumerate(pictures, start=1):
        label = tokenizer(f"<Picture {number}>: ", add_special_tokens=False)["input_ids"]
        start, pad, end = tokenizer.convert_tokens_to_ids(["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"])
        ids += [*label, start, *[pad] * tokens, end]
        tags += [TEXT] * len(label) + [VIDEO] * (tokens + 2)
    words = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    return ids + words, tags + [TEXT] * len(words)
