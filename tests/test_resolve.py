"""Fitting a request to a grid, against diffusers' own arithmetic of MiniMax-H3."""

import warnings
from dataclasses import replace

import pytest
from diffusers.modular_pipelines.minimax_h3.modular_pipeline import align_num_frames, resolve_canvas_size
from hypothesis import given, settings
from hypothesis import strategies as st

from videoinfer.errors import RequestError
from videoinfer.request import GenerationRequest, Grid, RequestAdjusted, canvas_size, resolve

H3 = Grid(
    fps=24,
    frames_per_chunk=17,
    frames_tail=5,
    min_frames=120,
    max_frames=362,
    multiple=32,
    default_short_edge=768,
    max_pixels=768 * 1344,
    default_steps=50,
    max_steps=1000,
    why_no_guidance="guidance is distilled into the weights",
    max_images=9,
    max_videos=3,
    max_audios=3,
    max_references=12,
)
TOY = replace(
    H3,
    default_short_edge=96,
    max_pixels=96 * 160,
    allowed_frames=(124, 209, 362),
    allowed_sizes=((160, 96), (96, 96)),
    default_size=(160, 96),
)


def fit(grid: Grid = H3, strict: bool = False, keyframe_size: tuple[int, int] | None = None, **data):
    """The resolved request, quietly."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RequestAdjusted)
        return resolve(GenerationRequest(**{"prompt": "x", **data}), grid, strict=strict, keyframe_size=keyframe_size)


def refs(*kinds: str) -> list[dict[str, str]]:
    return [{"kind": kind, "path": f"{number}.bin"} for number, kind in enumerate(kinds)]


@pytest.mark.parametrize(
    ("asked", "actual"),
    [
        *((120, 124), (121, 124), (123, 124), (124, 124), (125, 141), (141, 141), (142, 158), (208, 209), (209, 209)),
        *((345, 345), (346, 362), (361, 362), (362, 362)),
    ],
)
def test_frames_snap_up(asked, actual):
    resolved = fit(num_frames=asked)
    assert resolved.num_frames == actual == align_num_frames(asked, 17, 5)
    changes = [(a.field, a.asked, a.actual) for a in resolved.adjustments]
    assert changes == ([] if asked == actual else [("num_frames", asked, actual)])


@pytest.mark.parametrize("asked", [1, 5, 119, 363, 379, 10**30])
def test_frames_out_of_range(asked):
    with pytest.raises(RequestError, match=f"num_frames {asked} .*120 to 362 frames .*5.00 to 15.08 s"):
        fit(num_frames=asked)


@pytest.mark.parametrize(
    ("seconds", "actual"),
    [(4.99, 124), (5, 124), (5.17, 124), (5.2, 141), (15, 362), (15.08, 362), (15.09, 362), (6.0, 158)],
)
def test_seconds_mean_the_nearest_frame_and_then_snap_up(seconds, actual):
    assert fit(duration=seconds).num_frames == actual


@pytest.mark.parametrize("seconds", [0.01, 4.9, 15.11, 60, 1e300])
def test_seconds_out_of_range(seconds):
    with pytest.raises(RequestError, match=r"too (short|long)"):
        fit(duration=seconds)


def test_seconds_within_a_frame_are_no_adjustment_and_others_are_told_in_seconds():
    assert fit(duration=5.17).adjustments == ()
    (change,) = fit(duration=6.0).adjustments
    assert (change.field, change.asked, change.actual) == ("duration", 6.0, 6.5833)
    assert "17*n+5" in str(change)


@given(st.integers(120, 362))
@settings(max_examples=60, deadline=None)
def test_every_frame_count_agrees_with_diffusers(asked):
    assert fit(num_frames=asked).num_frames == align_num_frames(asked, 17, 5)


@given(st.integers(1, 10_000), st.integers(1, 50), st.data())
@settings(max_examples=60, deadline=None)
def test_any_grid_agrees_with_diffusers(asked, chunk, data):
    tail = data.draw(st.integers(0, chunk - 1))
    grid = replace(H3, frames_per_chunk=chunk, frames_tail=tail)
    assert grid.snap_frames(asked) == align_num_frames(asked, chunk, tail)


def test_default_length_is_the_shortest():
    assert fit().num_frames == fit(TOY).num_frames == 124
    assert fit().adjustments == ()


def test_a_model_trained_for_some_lengths_refuses_the_others():
    assert fit(TOY, num_frames=120).num_frames == 124
    with pytest.raises(RequestError, match=r"141 frames; .*124 \(5.17 s\), 209 \(8.71 s\), 362"):
        fit(TOY, num_frames=125)


@given(st.floats(1, 999), st.floats(1, 999), st.sampled_from([96, 544, 768]), st.sampled_from([16, 32]))
@settings(max_examples=150, deadline=None)
def test_every_canvas_agrees_with_diffusers(width, height, short, multiple):
    grid = replace(H3, default_short_edge=short, multiple=multiple, max_pixels=short * short * 7 // 4)
    try:
        expected = resolve_canvas_size(width, height, multiple, short, grid.max_pixels)
    except ValueError:
        with pytest.raises(RequestError):
            canvas_size(width, height, grid)
    else:
        assert canvas_size(width, height, grid) == expected[::-1]


@pytest.mark.parametrize("text", ["16:9", "16x9", "9:16", "1:1", "4:3", "21:9", "4:1", "1:4", "2.39:1"])
def test_aspect_ratios_give_the_released_canvases(text):
    width, height = (float(part) for part in text.replace("x", ":").split(":"))
    resolved = fit(aspect_ratio=text)
    assert (resolved.height, resolved.width) == resolve_canvas_size(width, height, 32, 768, 768 * 1344)
    assert resolved.adjustments == ()
    # What a ratio gives can also be asked for by its size.
    assert fit(size=(resolved.width, resolved.height), strict=True).width == resolved.width


@pytest.mark.parametrize("text", ["4.001:1", "1:4.001", "401:100", "100:1"])
def test_aspect_ratios_just_outside(text):
    with pytest.raises(RequestError, match=r"1:4 to 4:1"):
        fit(aspect_ratio=text)


def test_default_canvases():
    assert (fit().width, fit().height) == (1344, 768)
    assert (fit(TOY).width, fit(TOY).height) == (160, 96)
    image = fit(references=refs("image"), keyframe_size=(600, 900))
    assert (image.width, image.height) == (1344, 768)  # references do not bind the canvas


def test_a_keyframe_gives_its_own_ratio():
    frames = refs("first_frame", "last_frame")
    resolved = fit(references=frames, keyframe_size=(600, 900))
    assert (resolved.height, resolved.width) == resolve_canvas_size(600, 900, 32, 768, 768 * 1344)
    asked = fit(references=frames, keyframe_size=(600, 900), aspect_ratio="1:1")
    assert (asked.width, asked.height) == (768, 768)
    with pytest.raises(RequestError, match="aspect"):
        fit(references=frames, keyframe_size=(4100, 1000))


@pytest.mark.parametrize(("keyframe", "canvas"), [((50, 50), (96, 96)), ((9000, 10), (160, 96)), ((90, 100), (96, 96))])
def test_a_keyframe_takes_the_nearest_of_few_canvases(keyframe, canvas):
    resolved = fit(TOY, references=refs("first_frame"), keyframe_size=keyframe)
    assert (resolved.width, resolved.height) == canvas


@pytest.mark.parametrize(
    ("asked", "actual"),
    [(495, 480), (496, 512), (497, 512), (511, 512), (512, 512), (513, 512), (527, 512), (528, 512), (529, 544)],
)
def test_sides_round_to_the_nearest_multiple(asked, actual):
    # Halves go to the even multiple, as in the canvas rule of the released model.
    for size, expected in (((asked, 512), (actual, 512)), ((512, asked), (512, actual))):
        resolved = fit(size=size)
        assert (resolved.width, resolved.height) == expected
        changes = [(a.field, a.asked, a.actual) for a in resolved.adjustments]
        assert changes == ([] if size == expected else [("size", size, expected)])


def test_the_smallest_sides():
    assert (fit(size=(17, 16)).width, fit(size=(17, 16)).height) == (32, 32)
    with pytest.raises(RequestError, match="smallest side"):
        fit(size=(64, 15))


@pytest.mark.parametrize("size", [(1024, 256), (256, 1024)])
def test_sizes_at_the_edge_of_the_aspect_range(size):
    assert (fit(size=size).width, fit(size=size).height) == size


@pytest.mark.parametrize("size", [(1025, 256), (256, 1025), (1600, 32)])
def test_sizes_outside_the_aspect_range(size):
    with pytest.raises(RequestError, match=r"1:4 to 4:1"):
        fit(size=size)


@pytest.mark.parametrize("size", [(1920, 1080), (1376, 800), (65536, 65536)])
def test_sizes_with_too_many_pixels(size):
    with pytest.raises(RequestError, match="at most 1032192"):
        fit(size=size)


def test_a_model_trained_for_some_canvases_refuses_the_others():
    assert fit(TOY, size=(150, 100)).width == 160
    with pytest.raises(RequestError, match="160x96, 96x96"):
        fit(TOY, size=(128, 96))
    with pytest.raises(RequestError, match="160x96, 96x96"):
        fit(TOY, aspect_ratio="9:16")


def test_steps():
    assert (fit().steps, fit(steps=1).steps, fit(steps=1000).steps) == (50, 1, 1000)
    with pytest.raises(RequestError, match="1 to 1000"):
        fit(steps=1001)


@pytest.mark.parametrize("data", [{"guidance": 1.0}, {"guidance": 0.0}, {"negative_prompt": "blur"}])
def test_guidance_is_refused_with_the_reason(data):
    with pytest.raises(RequestError, match="distilled into the weights"):
        fit(**data)
    assert fit(replace(H3, supports_guidance=True, supports_negative=True), **data)


@pytest.mark.parametrize(
    ("kinds", "word"),
    [
        (["image"] * 10, "10 image"),
        (["video"] * 4, "4 video"),
        (["image"] + ["audio"] * 4, "4 audio"),
        (["image"] * 9 + ["video"] * 2 + ["audio"] * 2, "13 references"),
        (["audio"], "alone"),
        (["audio"] * 3, "alone"),
    ],
)
def test_references_that_are_too_many_or_too_few(kinds, word):
    with pytest.raises(RequestError, match=word):
        fit(references=refs(*kinds))


def test_the_most_references():
    resolved = fit(references=refs(*["image"] * 6, *["video"] * 3, *["audio"] * 3))
    assert resolved.workflow == "ref2va" and len(resolved.request.references) == 12


def test_one_warning_for_each_adjustment_and_none_without():
    request = GenerationRequest(prompt="x", num_frames=130, size=(630, 350))
    with pytest.warns(RequestAdjusted) as warned:
        resolved = resolve(request, H3)
    assert [str(w.message) for w in warned] == [str(a) for a in resolved.adjustments]
    assert [a.field for a in resolved.adjustments] == ["num_frames", "size"]
    assert "asked 630x350, making 640x352" in str(warned[1].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resolve(GenerationRequest(prompt="x", num_frames=124, size=(640, 352)), H3)


def test_strict_refuses_and_names_every_adjustment():
    assert fit(strict=True, num_frames=124).num_frames == 124
    with pytest.raises(RequestError, match=r"strict.*asked 130, making 141.*asked 630x350, making 640x352"):
        fit(strict=True, num_frames=130, size=(630, 350))


def test_the_resolved_request_carries_what_was_asked():
    resolved = fit(duration=6.0, seed=9)
    assert (resolved.request.duration, resolved.seed, resolved.workflow) == (6.0, 9, "t2va")
