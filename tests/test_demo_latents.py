"""The definition of the latents, against the pixels they stand for and the pipeline that will consume them."""

import pytest
import torch

from videoinfer.demo.latents import (
    CHANNELS,
    GLOBAL,
    LAYOUT,
    PIXEL,
    Basis,
    audio_latents,
    fit_basis,
    latent_frame_groups,
    normalise_pixels,
    patchify,
    picture_latents,
    scene_latents,
    seen,
)
from videoinfer.demo.render import render, render_picture
from videoinfer.demo.world import FPS, Scene, random_scene, trajectory


@pytest.fixture(scope="module")
def basis() -> Basis:
    generator = torch.Generator().manual_seed(0)
    scenes = [random_scene(generator, held_out=None) for _ in range(12)]
    frames = render(scenes, torch.arange(8) / FPS)
    return fit_basis(patchify(normalise_pixels(frames)).flatten(0, 3))


@pytest.mark.parametrize(("frames", "latents"), [(5, 2), (17, 5), (22, 7), (124, 37), (209, 62), (362, 107)])
def test_every_frame_belongs_to_one_latent_frame(frames, latents):
    groups = latent_frame_groups(frames)
    assert groups.shape == (latents, 4)
    assert groups.unique().tolist() == list(range(frames))
    assert all(len(set(row)) in (1, 4) for row in groups.tolist())


def test_latents_from_coverage_equal_the_projection_of_rendered_pixels(basis):
    generator = torch.Generator().manual_seed(3)
    scenes = [random_scene(generator, held_out=None) for _ in range(3)]
    groups = latent_frame_groups(22)
    latents = scene_latents(scenes, groups, basis)
    pixels = render(scenes, groups.flatten() / FPS)
    torch.testing.assert_close(
        latents[..., LAYOUT:], basis.project(patchify(normalise_pixels(pixels))), atol=1e-3, rtol=1e-3
    )
    assert latents.shape == (3, 7, 6, 10, CHANNELS)


def test_picture_latents_are_those_of_the_picture(basis):
    generator = torch.Generator().manual_seed(4)
    scene = random_scene(generator, held_out=None)
    pixels = render_picture(scene).float()[None, None].expand(1, 4, -1, -1, -1) / 255.0
    expected = basis.project(patchify(normalise_pixels(pixels)))
    torch.testing.assert_close(picture_latents([scene], basis)[..., LAYOUT:], expected, atol=0.2, rtol=0.05)


def test_global_channels_are_the_same_on_every_voxel_and_those_of_the_clip_in_every_frame(basis):
    generator = torch.Generator().manual_seed(6)
    scenes = [random_scene(generator, held_out=None) for _ in range(4)]
    everywhere = scene_latents(scenes, latent_frame_groups(124), basis)[..., :GLOBAL]
    assert torch.equal(everywhere, everywhere[:, :, :1, :1].expand_as(everywhere))
    of_the_clip = everywhere[..., [0, 1, 2, 7, 8, 9, 10]]
    assert torch.equal(of_the_clip, of_the_clip[:, :1].expand_as(of_the_clip))
    assert (everywhere[:, 1:, 0, 0, 6] > everywhere[:, :-1, 0, 0, 6]).all()  # time


def test_what_the_encoder_sees_of_a_frame_does_not_tell_its_time_or_its_clip(basis):
    moving = Scene("small", "red", "circle", "moves right", "black", (0.2, 0.5, 0.5, 0.5))
    x, y, _ = trajectory(moving, torch.zeros(()))
    place = ((float(x) - 18.8) / 122.4, (float(y) - 18.8) / 58.4)
    still = Scene("small", "red", "circle", "stands still", "black", (*place, 0.5, 0.5))
    first = latent_frame_groups(5)[:1]
    later = scene_latents([still], first + 40, basis)
    torch.testing.assert_close(seen(scene_latents([moving], first, basis)), seen(later), atol=1e-4, rtol=0)
    assert not torch.equal(seen(later), later)


def test_the_basis_is_orthonormal_and_ordered(basis):
    torch.testing.assert_close(basis.components @ basis.components.T, torch.eye(PIXEL), atol=1e-4, rtol=0)
    assert (basis.std.diff() <= 1e-5).all()
    patch = torch.randn(5, PIXEL)
    torch.testing.assert_close(basis.project(basis.reconstruct(patch)), patch, atol=1e-2, rtol=1e-2)


def test_audio_latents_do_not_depend_on_where_they_start():
    generator = torch.Generator().manual_seed(5)
    scenes = [random_scene(generator, held_out=None) for _ in range(2)]
    whole = audio_latents(scenes, 50)
    assert whole.shape == (2, 2, 50, 32)
    assert torch.equal(audio_latents(scenes, 20, start=30), whole[:, :, 30:])
