"""The definition of the latents, against the pixels they stand for and the pipeline that will consume them."""

import pytest
import torch

from videoinfer.demo.latents import (
    CHANNELS,
    LAYOUT,
    Basis,
    audio_latents,
    fit_basis,
    latent_frame_groups,
    normalise_pixels,
    patchify,
    picture_latents,
    scene_latents,
)
from videoinfer.demo.render import render, render_picture
from videoinfer.demo.world import FPS, random_scene


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


def test_the_basis_is_orthonormal_and_ordered(basis):
    torch.testing.assert_close(basis.components @ basis.components.T, torch.eye(14), atol=1e-4, rtol=0)
    assert (basis.std.diff() <= 1e-5).all()
    patch = torch.randn(5, 14)
    torch.testing.assert_close(basis.project(basis.reconstruct(patch)), patch, atol=1e-2, rtol=1e-2)


def test_audio_latents_do_not_depend_on_where_they_start():
    generator = torch.Generator().manual_seed(5)
    scenes = [random_scene(generator, held_out=None) for _ in range(2)]
    whole = audio_latents(scenes, 50)
    assert whole.shape == (2, 2, 50, 32)
    assert torch.equal(audio_latents(scenes, 20, start=30), whole[:, :, 30:])
