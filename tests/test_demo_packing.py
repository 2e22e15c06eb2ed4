"""Packed training batches give the velocities that the bare pipeline's DiT gives each sample alone."""

import pytest
import torch

from videoinfer.demo.architecture import TINY, make_transformer
from videoinfer.demo.packing import packed_velocity, patch_rows, pipeline_layout, share_packed_attention


@pytest.fixture(scope="module")
def dits():
    """The same weights twice: one for training, with packed attention, one untouched."""
    torch.manual_seed(0)
    packed, bare = make_transformer(TINY).eval(), make_transformer(TINY).eval()
    bare.load_state_dict(packed.state_dict())
    share_packed_attention(packed)
    return packed, bare


def alone(bare, layout, text, condition, video, audio, t_video, t_audio):
    """One sample through the unmodified model, its rows in the pipeline's order."""
    counts = [len(layout.text), len(layout.condition), audio.shape[0], video.shape[0]]
    ends = torch.tensor(counts).cumsum(0).tolist()
    rows = [torch.arange(end - count, end) for count, end in zip(counts, ends, strict=True)]
    times = torch.full((ends[-1],), float(t_video))
    times[rows[1]] = max(float(t_video), 0.999)
    times[rows[2]] = float(t_audio)
    distinct, which = torch.unique(times, return_inverse=True)
    tags = torch.cat([layout.text_tags, torch.zeros(counts[1]), torch.full((counts[2],), 2), torch.zeros(counts[3])])
    out, out_audio = bare(
        hidden_states=torch.cat([condition, video])[None],
        audio_hidden_states=audio[None],
        encoder_hidden_states=text[None],
        timestep=distinct,
        timestep_indices=which,
        token_tags=tags.long(),
        position_ids=torch.cat([layout.text, layout.condition, layout.audio.flatten(0, 1), layout.video.flatten(0, 1)]),
        video_indices=torch.cat([rows[1], rows[3]]),
        audio_indices=rows[2],
        text_indices=rows[0],
        return_dict=False,
    )
    return out[0, counts[1] :], out_audio[0]


@pytest.mark.parametrize(("anchors", "references"), [((), 0), (("first",), 0), (("first", "last"), 0), ((), 1)])
def test_packed_equals_alone(dits, anchors, references):
    packed, bare = dits
    generator = torch.Generator().manual_seed(1)
    tags = torch.tensor([1, 1, 0, 0, 1, 1, 1])
    layout = pipeline_layout(tags, 2, 9, anchors, references)
    assert len(layout.condition) == 15 * len(anchors) + 9 * references

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    text, condition = draw(3, 7, TINY.text_width), draw(3, len(layout.condition), 96)
    video, audio = draw(3, 30, 96), draw(3, 18, 32)
    t_video, t_audio = torch.tensor([0.1, 0.5, 0.9995]), torch.tensor([0.3, 0.6, 1.0 - 1e-4])
    every, all_audio = torch.arange(2).expand(3, -1), torch.arange(9).expand(3, -1)
    with torch.no_grad():
        got = packed_velocity(packed, layout, every, all_audio, text, condition, video, audio, t_video, t_audio)
        for k in range(3):
            expected = alone(bare, layout, text[k], condition[k], video[k], audio[k], t_video[k], t_audio[k])
            torch.testing.assert_close(got[0][k], expected[0], atol=2e-4, rtol=1e-3)
            torch.testing.assert_close(got[1][k], expected[1], atol=2e-4, rtol=1e-3)


def test_rows_are_packed_as_diffusers_packs_them():
    from diffusers.modular_pipelines.minimax_h3.before_denoise import patchify_video_latents

    latents = torch.randn(1, 3, 6, 10, 24)
    expected = patchify_video_latents(latents.permute(0, 4, 1, 2, 3), (1, 2, 2))
    assert torch.equal(patch_rows(latents)[0], expected)
