"""The measures of a step-cache report, against formulas by hand, small reference code and published values."""

import math

import numpy as np
import pytest
import torch

from videoinfer.demo.render import render_clip, scene_coverage, sound
from videoinfer.demo.world import MOTIONS, Scene, clip_seconds
from videoinfer.eval.metrics.interval import at_most, clopper_pearson
from videoinfer.eval.metrics.latent_error import frame_rhos, mean_and_p90, rho, stream_rhos, worst_frame_rho
from videoinfer.eval.metrics.lost import checker_lost, lost_and_gained, right_attributes
from videoinfer.eval.metrics.moving import motion, motion_ratio, moving_area, object_psnr, swept_area
from videoinfer.eval.metrics.picture import frame_psnrs, frame_ssims, mean_psnr, psnr, ssim, worst_frame_psnr
from videoinfer.eval.metrics.sound import log_spectral_distance, waveform_error
from videoinfer.eval.metrics.summary import ClipQuality, summarise, worst_tenth


def noise(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def square_clip(places: list[int], side: int = 8, size: tuple[int, int] = (24, 40)) -> np.ndarray:
    """A white square on black whose left edge is at `places`, its top at 8."""
    frames = np.zeros((len(places), *size, 3), np.uint8)
    for frame, x in zip(frames, places, strict=True):
        frame[8 : 8 + side, x : x + side] = 255
    return frames


# Latents


def test_rho_by_hand():
    assert rho(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 0.0])) == pytest.approx(4 / 3, rel=1e-15)
    assert rho(torch.ones(2, 5, 3), torch.ones(2, 5, 3)) == 0.0
    assert rho(torch.zeros(1), torch.tensor([-2.0])) == 1.0


def test_rho_is_computed_in_float64():
    dense = torch.full((1_000_003,), 1000.0)
    moved = dense.clone()
    moved[0] += 0.0625  # exact in float32; its square is lost in a float32 sum of 1e12
    assert rho(moved, dense) == pytest.approx(0.0625 / (1000.0 * math.sqrt(1_000_003)), rel=1e-12)


@pytest.mark.parametrize("frames", [1, 2, 7])
def test_the_worst_frame_is_found_and_the_stream_is_their_weighted_mean(frames):
    generator = torch.Generator().manual_seed(frames)
    dense = torch.randn(1, 3, frames, 5, 1, generator=generator)
    ours = dense.clone()
    ours[:, :, frames - 1] *= 1.5
    ours[:, :, 0] *= 1.25 if frames > 1 else 1.0
    found = frame_rhos(ours, dense)
    expected = [0.5] if frames == 1 else [0.25, *[0.0] * (frames - 2), 0.5]
    assert found == pytest.approx(expected, rel=1e-6)
    assert worst_frame_rho(ours, dense) == pytest.approx(0.5, rel=1e-6)
    weights = dense.double().square().sum((0, 1, 3, 4)).numpy()
    assert rho(ours, dense) ** 2 == pytest.approx((weights * found**2).sum() / weights.sum())


def test_streams_are_judged_apart():
    dense = {"video": torch.ones(1, 1, 1, 1, 2), "audio": torch.ones(2, 3, 5)}
    ours = {"video": dense["video"] * 1.5, "audio": dense["audio"]}
    assert stream_rhos(ours, dense) == {"video": 0.5, "audio": 0.0}
    with pytest.raises(ValueError, match=r"\['video'\].*\['audio', 'video'\]"):
        stream_rhos({"video": dense["video"]}, dense)


def test_wrong_latents_are_refused():
    with pytest.raises(ValueError, match=r"\(2, 3\).*\(3, 2\)"):
        rho(torch.ones(2, 3), torch.ones(3, 2))
    with pytest.raises(ValueError, match=r"latents of shape \(2,\) hold 1 values that are NaN"):
        rho(torch.tensor([1.0, math.nan]), torch.ones(2))
    with pytest.raises(ValueError, match="dense latents of shape"):
        rho(torch.ones(2), torch.tensor([1.0, math.inf]))
    with pytest.raises(ValueError, match="all zero"):
        rho(torch.ones(2), torch.zeros(2))
    with pytest.raises(ValueError, match="nothing to compare"):
        rho(torch.ones(2, 0), torch.ones(2, 0))
    with pytest.raises(ValueError, match=r"\(2, 3, 5\)"):
        frame_rhos(torch.ones(2, 3, 5), torch.ones(2, 3, 5))


@pytest.mark.parametrize(("n", "rank"), [(1, 1), (2, 2), (9, 9), (10, 9), (11, 10), (20, 18), (30, 27), (101, 91)])
def test_the_percentile_is_a_measured_value(n, rank):
    values = np.random.default_rng(n).permutation(np.arange(1, n + 1)).astype(float).tolist()
    assert mean_and_p90(values) == ((n + 1) / 2, rank)
    assert sum(value <= rank for value in values) * 10 >= 9 * n > sum(value < rank for value in values) * 10


def test_a_mean_of_nothing_or_nan_is_refused():
    for values in ([], [0.1, math.nan]):
        with pytest.raises(ValueError, match="NaN"):
            mean_and_p90(values)
        with pytest.raises(ValueError, match="NaN"):
            mean_psnr(values)


# Pictures


@pytest.mark.parametrize("shape", [(1, 1, 1, 3), (1, 1, 7, 3), (3, 5, 1, 3), (2, 13, 17, 3)])
def test_psnr_of_a_constant_difference(shape):
    dark, light = np.full(shape, 3, np.uint8), np.full(shape, 5, np.uint8)
    expected = 20 * math.log10(255 / 2)
    assert psnr(dark, light) == pytest.approx(expected, rel=1e-14) == psnr(light, dark)
    assert frame_psnrs(dark, light) == pytest.approx([expected] * shape[0])


def test_nothing_wraps_around():
    assert psnr(np.zeros((1, 1, 1, 3), np.uint8), np.full((1, 1, 1, 3), 255, np.uint8)) == 0.0
    # E (a - b)^2 of two independent uniform levels is (256^2 - 1) / 6; wrapped to uint8 it would come out near 27.9 dB
    expected = 10 * math.log10(255**2 * 6 / (256**2 - 1))
    assert expected == pytest.approx(7.75, abs=0.05)
    assert psnr(noise((2, 101, 103, 3), 1), noise((2, 101, 103, 3), 2)) == pytest.approx(expected, abs=0.1)


def test_psnr_of_known_noise():
    dense = np.full((3, 61, 67, 3), 128, np.uint8)
    for sigma in (1, 10, 20):
        noisy = 128 + np.random.default_rng(sigma).normal(0, sigma, dense.shape)
        expected = 10 * math.log10(255**2 / (sigma**2 + 1 / 12))  # rounding to levels adds 1/12
        assert psnr(noisy.round().clip(0, 255).astype(np.uint8), dense) == pytest.approx(expected, abs=0.12)


def test_a_clip_is_one_signal_and_its_worst_frame_is_told():
    dense = np.zeros((4, 3, 5, 3), np.uint8)
    ours = dense.copy()
    ours[2] = 10
    assert frame_psnrs(ours, dense).tolist() == [math.inf, math.inf, 20 * math.log10(25.5), math.inf]
    assert worst_frame_psnr(ours, dense) == pytest.approx(28.1308, abs=1e-4)
    assert psnr(ours, dense) == pytest.approx(10 * math.log10(255**2 / 25))  # MSE 100 in one frame of four


def test_identical_clips_count_as_the_cap_in_means():
    clip = noise((2, 3, 5, 3))
    assert psnr(clip, clip) == math.inf == worst_frame_psnr(clip, clip)
    assert mean_psnr([math.inf, 20.0]) == 60.0
    assert mean_psnr([115.0, 20.0]) == 60.0  # nearly identical is not better than identical


def test_psnr_inside_a_mask():
    dense = np.zeros((2, 3, 5, 3), np.uint8)
    ours = dense.copy()
    ours[:, 1, 2], ours[1, 0, 0] = 51, 255
    still = np.zeros((3, 5), bool)
    still[1, 2] = True
    assert psnr(ours, dense, still) == pytest.approx(20 * math.log10(5))
    moves = np.zeros((2, 3, 5), bool)
    moves[1, 0, 0] = True
    assert psnr(ours, dense, moves) == 0.0
    assert psnr(ours, dense, np.ones((3, 5), bool)) == psnr(ours, dense)
    assert psnr(ours, dense, ~(still | moves[1])) == math.inf
    for mask in (np.zeros((3, 5), bool), np.ones((5, 3), bool), np.ones((3, 5), np.uint8)):
        with pytest.raises(ValueError, match="mask"):
            psnr(ours, dense, mask)


def reference_ssim(a: np.ndarray, b: np.ndarray) -> float:
    """Wang et al. 2004 for one channel (H, W), window by window in float64, borders reflected."""
    kernel = np.exp(-0.5 * (np.arange(-5, 6) / 1.5) ** 2)
    window = np.outer(kernel, kernel) / kernel.sum() ** 2
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    a, b = (np.pad(side.astype(np.float64), 5, mode="reflect") for side in (a, b))
    values = []
    for y in range(a.shape[0] - 10):
        for x in range(a.shape[1] - 10):
            p, q = a[y : y + 11, x : x + 11], b[y : y + 11, x : x + 11]
            mean_p, mean_q = (window * p).sum(), (window * q).sum()
            var_p, var_q = (window * (p - mean_p) ** 2).sum(), (window * (q - mean_q) ** 2).sum()
            covariance = (window * (p - mean_p) * (q - mean_q)).sum()
            likeness = (2 * mean_p * mean_q + c1) * (2 * covariance + c2)
            values.append(likeness / ((mean_p**2 + mean_q**2 + c1) * (var_p + var_q + c2)))
    return float(np.mean(values))


@pytest.mark.parametrize("size", [(6, 6), (11, 13), (17, 7)])
def test_ssim_is_that_of_the_paper(size):
    smooth = (np.add.outer(np.arange(size[0]), np.arange(size[1])) * 5 + 40).astype(np.uint8)
    dense = np.stack([np.stack([smooth, smooth[::-1], smooth // 2], -1), noise((*size, 3), 1)])
    ours = np.clip(dense.astype(int) + np.random.default_rng(2).integers(-30, 31, dense.shape), 0, 255).astype(np.uint8)
    expected = [np.mean([reference_ssim(ours[f, ..., c], dense[f, ..., c]) for c in range(3)]) for f in range(2)]
    assert frame_ssims(ours, dense) == pytest.approx(expected, abs=1e-4)
    assert ssim(ours, dense) == pytest.approx(np.mean(expected), abs=1e-4)


def test_ssim_of_constant_and_identical_clips_of_any_length():
    black, grey = np.zeros((17, 6, 9, 3), np.uint8), np.full((17, 6, 9, 3), 100, np.uint8)
    c1 = (0.01 * 255) ** 2
    assert frame_ssims(grey, black) == pytest.approx([c1 / (100**2 + c1)] * 17, rel=1e-3)
    assert frame_ssims(grey, grey) == pytest.approx([1.0] * 17, abs=1e-6)
    with pytest.raises(ValueError, match=r"6 pixels.*\(17, 5, 9, 3\)"):
        ssim(black[:, :5], grey[:, :5])


@pytest.mark.parametrize("measure", [psnr, frame_psnrs, frame_ssims, moving_area, motion_ratio])
def test_wrong_frames_are_refused(measure):
    good = noise((2, 8, 8, 3))
    with pytest.raises(ValueError, match=r"\(2, 8, 8, 3\).*\(1, 8, 8, 3\)"):
        measure(good, good[:1])
    with pytest.raises(ValueError, match="float64"):
        measure(good / 255.0, good)
    with pytest.raises(ValueError, match=r"\(2, 8, 8\)"):
        measure(good[..., 0], good[..., 0])
    with pytest.raises(ValueError, match="nothing to compare"):
        measure(good[:0], good[:0])


# Motion


def test_the_swept_area_is_all_that_the_object_passed_over():
    mask = swept_area(square_clip(list(range(4, 29))))
    expected = np.zeros((24, 40), bool)
    expected[8:16, 4:36] = True
    assert (mask == expected).all()


def test_the_middle_of_a_slow_object_belongs_to_it():
    mask = swept_area(square_clip([8, 10, 12], side=12))  # x from 12 to 20 is white all the time
    expected = np.zeros((24, 40), bool)
    expected[8:20, 8:24] = True
    assert (mask == expected).all()


@pytest.mark.parametrize("words", [("small", "purple", "triangle"), ("large", "red", "circle")])
@pytest.mark.parametrize("motion_word", [word for word in MOTIONS if word != "stands still"])
def test_the_swept_area_is_that_of_the_drawing(words, motion_word):
    scene = Scene(*words, motion_word, "gray", (0.3, 0.4, 0.5, 0.5))
    mask = swept_area(render_clip(scene, 97).numpy())
    drawn = (scene_coverage([scene], clip_seconds(97))[0] > 0.5).any(0).numpy()
    assert (drawn & ~mask).sum() < 0.08 * drawn.sum()  # cells of which the object covers a corner
    assert (mask & ~drawn).sum() < 0.3 * drawn.sum()


def test_an_object_in_the_wrong_place_is_inside_the_union():
    dense, ours = square_clip([0, 8, 16]), square_clip([24, 24, 32])
    area = moving_area(ours, dense)
    assert area.moves and area.mask.sum() == 8 * 40
    value, moves = object_psnr(ours, dense)
    assert moves and value == pytest.approx(10 * math.log10(8 * 40 / (2 * 64)))  # two wrong squares in every frame
    assert psnr(ours, dense) == pytest.approx(10 * math.log10(24 * 40 / (2 * 64)))


@pytest.mark.parametrize("shape", [(1, 1, 1, 3), (5, 1, 9, 3), (1, 13, 17, 3), (4, 23, 41, 3)])
def test_where_nothing_moves_the_whole_frame_is_compared_and_it_is_said(shape):
    dense = np.broadcast_to(noise(shape[1:]), shape).copy()
    ours = dense // 2
    area = moving_area(ours, dense)
    assert not area.moves and area.mask.shape == shape[1:3] and area.mask.all()
    assert object_psnr(ours, dense) == (psnr(ours, dense), False)
    assert motion(dense) == 0.0 and motion_ratio(ours, dense) is None


def test_odd_sizes_keep_their_edges():
    frames = np.zeros((3, 5, 7, 3), np.uint8)
    frames[1, 4, 6] = 255  # in a cell of 1 x 3 pixels in the corner
    expected = np.zeros((5, 7), bool)
    expected[4, 4:] = True
    assert (swept_area(frames) == expected).all()


def test_a_frozen_clip_has_no_motion_and_noise_is_none():
    dense = square_clip(list(range(29)) + list(range(28, 0, -1)))
    frozen = np.broadcast_to(dense[:1], dense.shape)
    assert motion_ratio(dense, dense) == 1.0
    assert motion_ratio(frozen, dense) == 0.0
    generator = np.random.default_rng(5)

    def noisy(frames):
        return (frames + generator.normal(0, 8, frames.shape)).round().clip(0, 255).astype(np.uint8)

    def plain(frames):
        return np.abs(np.diff(frames.astype(float), axis=0)).mean()

    ours = noisy(frozen)
    assert plain(ours) > 0.3 * plain(dense)  # what a mean of frame differences takes for motion
    assert motion_ratio(ours, dense) < 0.01
    assert motion_ratio(noisy(dense), dense) == pytest.approx(1.0, abs=0.03)
    assert moving_area(ours, noisy(frozen)).moves is False


@pytest.mark.parametrize("count", [2, 3, 23, 24, 25, 49])
def test_half_the_speed_is_half_the_motion(count):
    fast = [round(8 * step / count * 2) for step in range(count)]
    dense, slow = square_clip(fast, side=20, size=(32, 48)), square_clip([x // 2 for x in fast], 20, (32, 48))
    assert motion_ratio(slow, dense) == pytest.approx(0.5, abs=0.15)


# Sound


def test_waveform_error_by_hand():
    dense = torch.tensor([[0.5, -0.5], [0.5, 0.5]])
    assert waveform_error(dense * 0.75, dense) == pytest.approx(0.25, rel=1e-15)
    assert waveform_error(-dense, dense) == pytest.approx(2.0, rel=1e-15)
    assert waveform_error(dense.numpy(), dense.numpy()) == 0.0


@pytest.mark.parametrize("samples", [1, 255, 1023, 1025, 5003])
def test_silence_has_no_error_and_noise_in_it_a_finite_one(samples):
    silent, loud = torch.zeros(2, samples), torch.full((2, samples), 0.5)
    assert waveform_error(silent, silent) == 0.0 == log_spectral_distance(silent, silent)
    assert waveform_error(loud, silent) == pytest.approx(500.0)
    assert 0.0 < log_spectral_distance(loud, silent) < 80.0
    assert waveform_error(silent, loud) == pytest.approx(1.0)
    assert log_spectral_distance(silent, loud) > 0.0


def test_the_spectral_distance_hears_loudness_and_pitch_but_no_phase():
    time = torch.arange(32_000, dtype=torch.float64) / 32_000

    def tone(hertz: float, turn: float = 0.0) -> torch.Tensor:
        return 0.5 * torch.sin(2 * math.pi * (hertz * time + turn)).expand(2, -1)

    dense = tone(1000.0)
    turned = log_spectral_distance(tone(1000.0, 0.25), dense)
    assert waveform_error(tone(1000.0, 0.25), dense) == pytest.approx(math.sqrt(2), rel=1e-3)
    assert turned < 0.6  # all of it from the two ends, where the tones begin otherwise
    assert log_spectral_distance(-dense, dense) == 0.0
    assert log_spectral_distance(tone(1500.0), dense) > 5.0 * max(turned, 0.1)
    rough = torch.randn(2, 32_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64) / 8
    assert log_spectral_distance(2.0 * rough, rough) == pytest.approx(20 * math.log10(2), abs=0.05)
    assert log_spectral_distance(rough, 2.0 * rough) == pytest.approx(20 * math.log10(2), abs=0.05)


@pytest.mark.parametrize("measure", [waveform_error, log_spectral_distance])
def test_wrong_sounds_are_refused(measure):
    with pytest.raises(ValueError, match=r"\(2, 7\).*\(2, 8\)"):
        measure(torch.ones(2, 7), torch.ones(2, 8))
    with pytest.raises(ValueError, match="NaN"):
        measure(torch.full((2, 7), math.nan), torch.ones(2, 7))
    with pytest.raises(ValueError, match=r"\(7,\)"):
        measure(torch.ones(7), torch.ones(7))


# The checker

SCENE = Scene("large", "red", "circle", "moves right", "black")
EXPECTED = {"colour": "red", "background": "black", "shape": "circle", "size": "large", "motion": "moves right"}


def test_lost_attributes_are_named():
    dense, dense_audio = render_clip(SCENE, 49), sound(SCENE, 49)
    frozen = dense[:1].expand_as(dense)
    square = sound(Scene("large", "red", "square", "moves right", "black"), 49)
    assert right_attributes(dense, dense_audio, EXPECTED) == dict.fromkeys([*EXPECTED, "sound", "pan"], True)
    assert checker_lost(dense, dense_audio, dense.numpy(), dense_audio.numpy(), EXPECTED) == ([], [])
    assert checker_lost(frozen, square, dense, dense_audio, EXPECTED) == (["motion", "sound"], [])
    assert checker_lost(dense, dense_audio, frozen, square, EXPECTED) == ([], ["motion", "sound"])


def test_only_what_was_asked_is_judged():
    frames = render_clip(SCENE, 9)
    assert right_attributes(frames, None, {"colour": "blue"}) == {"colour": False}
    assert right_attributes(frames, torch.zeros(2, 16_000), {"colour": "red"}) == {"colour": True, "pan": False}
    with pytest.raises(ValueError, match="'color' is not one of colour, background, shape, size, motion"):
        right_attributes(frames, None, {"color": "red"})
    with pytest.raises(ValueError, match=r"\['colour'\].*\['colour', 'pan'\]"):
        lost_and_gained({"colour": True}, {"colour": True, "pan": True})


# The report


@pytest.mark.parametrize(
    ("count", "n", "low", "high"),
    [
        (0, 1, 0.0, 0.975),
        (1, 1, 0.025, 1.0),
        (0, 10, 0.0, 0.3085),
        (1, 10, 0.0025, 0.4450),
        (5, 10, 0.1871, 0.8129),
        (10, 10, 0.6915, 1.0),
        (0, 20, 0.0, 0.1684),
        (1, 20, 0.0013, 0.2487),
        (0, 100, 0.0, 0.0362),
        (5, 100, 0.0164, 0.1128),
        (50, 100, 0.3983, 0.6017),
    ],
)
def test_published_clopper_pearson_intervals(count, n, low, high):
    assert clopper_pearson(count, n) == pytest.approx((low, high), abs=5.1e-5)


def test_intervals_of_many_trials_and_their_closed_form():
    for n in (1, 7, 20, 5000):
        assert clopper_pearson(0, n)[1] == pytest.approx(1 - 0.025 ** (1 / n), rel=1e-9)
        assert clopper_pearson(n, n, 0.9)[0] == pytest.approx(0.05 ** (1 / n), rel=1e-9)
    low, high = clopper_pearson(1500, 5000)
    assert (low + high) / 2 == pytest.approx(0.3, abs=1e-3)
    assert (high - low) / 2 == pytest.approx(1.96 * math.sqrt(0.3 * 0.7 / 5000), rel=0.02)  # the normal approximation


def test_the_binomial_tail_by_hand():
    assert at_most(1, 3, 0.5) == pytest.approx(4 / 8)
    assert at_most(2, 4, 0.25) == pytest.approx(1 - 4 * 0.25**3 * 0.75 - 0.25**4)
    for count, n in ((-1, 5), (6, 5), (0, 0)):
        with pytest.raises(ValueError, match=f"{count} of {n}"):
            clopper_pearson(count, n)
    with pytest.raises(ValueError, match="confidence"):
        clopper_pearson(1, 5, 1.0)


def quality(number: int = 0, **changed) -> ClipQuality:
    row: dict = {
        "rho": {"video": 0.01 * number, "audio": 0.02},
        "rho_worst_frame": 0.03 * number,
        "psnr": 30.0 + number,
        "psnr_worst_frame": 20.0 + number,
        "psnr_object": 25.0 + number,
        "object_moves": number % 2 == 0,
        "ssim": 0.9,
        "motion_ratio": None if number % 2 else 1.0 - 0.1 * number,
        "audio_error": 0.5,
        "audio_distance": 2.0,
        "lost": ["colour"] * (number == 3),
        "gained": ["pan", "size"] * (number == 4),
    }
    return ClipQuality(**(row | changed))


def test_the_columns_of_five_clips():
    found = summarise([quality(number) for number in range(5)], budget=0.02)
    assert (found.n, found.n_moving) == (5, 3)
    assert found.rho_mean == pytest.approx((0.02 + 0.02 + 0.02 + 0.03 + 0.04) / 5)  # the worse stream of each
    assert found.rho_p90 == 0.04 and found.rho_worst_frame == 0.12
    assert found.rho_streams == pytest.approx({"video": 0.02, "audio": 0.02})
    assert (found.psnr_mean, found.psnr_worst_decile, found.psnr_worst_frame) == (32.0, 30.0, 20.0)
    assert (found.psnr_object, found.ssim_mean) == (27.0, pytest.approx(0.9))
    assert (found.checker_lost, found.checker_gained) == (1, 2)
    assert found.motion_ratio == pytest.approx(0.8)  # of 1.0, 0.8 and 0.6
    assert (found.audio_error, found.audio_distance) == (0.5, 2.0)
    assert (found.violations, found.violation_rate) == (2, 0.4)  # a rho that equals the budget keeps it
    assert found.violation_interval == pytest.approx((0.0527, 0.8534), abs=5e-5)


def test_a_row_without_budget_sound_or_motion():
    found = summarise([quality(1, audio_error=None, audio_distance=None, psnr=math.inf, psnr_worst_frame=math.inf)])
    assert found.motion_ratio is found.audio_error is found.audio_distance is None
    assert found.violations is found.violation_rate is found.violation_interval is None
    assert found.psnr_mean == found.psnr_worst_decile == found.psnr_worst_frame == 100.0


@pytest.mark.parametrize(("n", "worst"), [(1, 1), (9, 1), (10, 1), (19, 1), (20, 2), (31, 3)])
def test_the_worst_tenth(n, worst):
    values = np.random.default_rng(n).permutation(np.arange(n)).astype(float).tolist()
    assert worst_tenth([*values]) == pytest.approx(sum(range(worst)) / worst)


def test_wrong_rows_are_refused():
    with pytest.raises(ValueError, match="one clip"):
        summarise([])
    with pytest.raises(ValueError, match="clip 1: ssim is NaN"):
        summarise([quality(), quality(ssim=math.nan)])
    with pytest.raises(ValueError, match="clip 0: rho of video is NaN"):
        summarise([quality(rho={"video": math.nan, "audio": 0.1})])
    with pytest.raises(ValueError, match=r"clip 1 has streams \['video'\]"):
        summarise([quality(), quality(rho={"video": 0.1})])
    for budget in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="budget"):
            summarise([quality()], budget)
