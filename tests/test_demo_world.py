"""The procedural world: its grammar, its motions, its pixels and its sound."""

import math

import pytest
import torch

from videoinfer.demo.render import SAMPLE_RATE, TIMBRES, coverage, render_clip, render_picture, sound
from videoinfer.demo.world import (
    FRAME_TEMPLATES,
    HEIGHT,
    REFERENCE_TEMPLATES,
    SHAPES,
    TEMPLATES,
    WIDTH,
    Scene,
    all_scenes,
    beginning,
    clip_seconds,
    parse,
    random_scene,
    trajectory,
    vocabulary,
)

ATTRIBUTES = ("size", "colour", "shape", "motion", "background")


def test_a_prompt_tells_its_scene():
    for scene in all_scenes()[::37]:
        for template in TEMPLATES:
            assert parse(scene.prompt(template)) == {name: getattr(scene, name) for name in ATTRIBUTES}
    scene = all_scenes()[0]
    assert set(parse(scene.prompt(FRAME_TEMPLATES[0]))) == {"motion"}
    assert set(parse(scene.prompt(REFERENCE_TEMPLATES[0]))) == {"motion", "background"}


def test_words_of_the_world_are_never_confused():
    assert parse("a green thing on a black background") == {"colour": "green", "background": "black"}
    assert parse("it stands still, whatever blackish words are around") == {"motion": "stands still"}


def test_vocabulary_covers_every_prompt():
    import re

    known = set(vocabulary())
    for scene in all_scenes()[::53]:
        for template in (*TEMPLATES, *FRAME_TEMPLATES, *REFERENCE_TEMPLATES):
            assert set(re.findall(r"[A-Za-z]+", scene.prompt(template))) <= known


def test_about_one_combination_in_ten_is_held_out():
    share = sum(scene.held_out for scene in all_scenes()) / len(all_scenes())
    assert 0.07 < share < 0.13
    generator = torch.Generator().manual_seed(0)
    assert not any(random_scene(generator).held_out for _ in range(200))
    assert all(random_scene(generator, held_out=True).held_out for _ in range(20))


@pytest.mark.parametrize("num_frames", [124, 209, 362])
def test_the_whole_object_stays_on_the_canvas(num_frames):
    generator = torch.Generator().manual_seed(1)
    seconds = clip_seconds(num_frames)[::5]
    for _ in range(150):
        scene = random_scene(generator, held_out=None)
        x, y, r = trajectory(scene, seconds)
        cover = coverage(torch.tensor([SHAPES.index(scene.shape)]), x[None], y[None], r[None], (WIDTH, HEIGHT))[0]
        edge = cover[:, [0, -1]].sum() + cover[:, :, [0, -1]].sum()
        assert float(edge) == 0.0, scene


def test_the_beginning_is_where_and_whither_the_object_moves_at_first():
    generator = torch.Generator().manual_seed(2)
    for _ in range(100):
        scene = random_scene(generator, held_out=None)
        x, y, _ = trajectory(scene, torch.tensor([0.0, 1e-3]))
        start_x, start_y, *heading = beginning(scene)
        assert (start_x, start_y) == (float(x[0]), float(y[0]))
        way = torch.stack([x.diff(), y.diff()]).flatten()
        if scene.motion in ("stands still", "grows bigger"):
            assert heading == [0.0, 0.0] and not way.any()
        elif scene.motion == "bounces around":  # the signs alone: one direction for all speeds
            assert torch.equal(way.sign(), torch.tensor(heading).sign())
        else:
            torch.testing.assert_close(way / way.norm(), torch.tensor(heading), atol=0.02, rtol=0)


@pytest.mark.parametrize("kind", range(3))
def test_coverage_has_the_area_of_the_shape(kind):
    r = 20.0
    area = (math.pi * r * r, (1.78 * r) ** 2, (2.02 * r) ** 2 / math.sqrt(3.0))[kind]
    middle = torch.tensor([[50.3]])
    cover = coverage(torch.tensor([kind]), middle, middle, torch.tensor([[r]]), (101, 99))
    assert float(cover.sum()) == pytest.approx(area, rel=0.01)
    assert cover.shape == (1, 1, 99, 101)


def test_frames_do_not_depend_on_the_clip_length():
    scene = Scene("small", "cyan", "triangle", "bounces around", "navy")
    assert torch.equal(render_clip(scene, 5), render_clip(scene, 124)[:5])


def test_the_picture_shows_the_object_in_the_middle():
    picture = render_picture(Scene("large", "red", "square", "moves up", "gray"))
    assert picture.shape == (96, 96, 3)
    assert picture[48, 48].tolist() == [220, 40, 40] and picture[0, 0].tolist() == [120, 120, 120]


@pytest.mark.parametrize("shape", SHAPES)
def test_sound_has_the_pitch_of_the_shape_and_pans_with_x(shape):
    audio = sound(Scene("small", "red", shape, "moves right", "black"), 124)
    assert audio.shape == (2, round(124 / 24 * SAMPLE_RATE))
    spectrum = torch.fft.rfft(audio.sum(0)).abs()
    peak = float(spectrum.argmax()) * SAMPLE_RATE / audio.shape[1]
    assert peak == pytest.approx(TIMBRES[shape][0], abs=1.0)
    start, end = (part.square().mean(1).sqrt() for part in (audio[:, :8000], audio[:, -8000:]))
    assert start[0] > start[1] and end[1] > end[0]
    power = audio.unfold(1, 800, 800).square().mean(-1).sum(0)
    assert float(power.std() / power.mean()) < 0.02  # constant power while it pans
