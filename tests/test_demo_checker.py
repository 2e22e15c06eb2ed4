"""The checker reads clean clips exactly, and knows when it sees nothing."""

import pytest
import torch

from videoinfer.demo.checker import read_clip
from videoinfer.demo.render import render_clip, sound
from videoinfer.demo.world import MOTIONS, SHAPES, Scene, random_scene

ATTRIBUTES = ("colour", "background", "shape", "size", "motion")


def seen(reading):
    return {name: getattr(reading, name) for name in ATTRIBUTES}


@pytest.mark.parametrize("motion", MOTIONS)
def test_clean_clips_are_read_exactly(motion):
    generator = torch.Generator().manual_seed(MOTIONS.index(motion))
    for _ in range(3):
        drawn = random_scene(generator, held_out=None)
        scene = Scene(drawn.size, drawn.colour, drawn.shape, motion, drawn.background, drawn.chance)
        reading = read_clip(render_clip(scene, 124), sound(scene, 124))
        assert seen(reading) == {name: getattr(scene, name) for name in ATTRIBUTES}
        assert reading.sound == scene.shape and reading.pan


@pytest.mark.slow
@pytest.mark.parametrize("num_frames", [124, 209, 362])
def test_every_motion_shape_and_size_is_read_at_every_length(num_frames):
    generator = torch.Generator().manual_seed(num_frames)
    for _ in range(100):
        scene = random_scene(generator, held_out=None)
        reading = read_clip(render_clip(scene, num_frames), sound(scene, num_frames))
        assert seen(reading) == {name: getattr(scene, name) for name in ATTRIBUTES}, scene


def test_a_little_noise_changes_nothing_and_much_noise_does():
    generator = torch.Generator().manual_seed(7)
    scenes = [random_scene(generator, held_out=None) for _ in range(6)]
    right = {}
    for level in (0.0, 8.0, 120.0):
        right[level] = 0
        for scene in scenes:
            frames = render_clip(scene, 124)[::4].float()
            noisy = (frames + level * torch.randn(frames.shape, generator=generator)).clamp(0, 255).to(torch.uint8)
            reading = read_clip(noisy, seconds=torch.arange(0, 124, 4) / 24)
            right[level] += sum(getattr(reading, name) == getattr(scene, name) for name in ATTRIBUTES)
    assert right[0.0] == right[8.0] == 30
    assert right[120.0] < 25


def test_an_empty_canvas_has_no_object():
    frames = torch.full((10, 96, 160, 3), 120, dtype=torch.uint8)
    reading = read_clip(frames, torch.zeros(2, 32000))
    assert seen(reading) == {"colour": None, "background": "gray", "shape": None, "size": None, "motion": None}
    assert reading.sound is None and reading.pan is None


def test_a_wrong_sound_is_noticed():
    scene = Scene("large", "red", "circle", "moves right", "black")
    mirrored = sound(Scene("large", "red", SHAPES[1], "moves left", "black"), 124)
    reading = read_clip(render_clip(scene, 124), mirrored)
    assert reading.sound == SHAPES[1] and reading.shape == "circle" and reading.pan is False


def test_one_frame_and_bad_shapes():
    assert read_clip(render_clip(Scene("large", "red", "circle", "moves up", "black"), 1)).motion is None
    with pytest.raises(ValueError, match=r"\(F, H, W, 3\)"):
        read_clip(torch.zeros(4, 96, 160))
