"""From measures and timings that were made up to rows, fronts, words, pages and plots."""

import itertools
import json
import random

import numpy as np
import pytest
from PIL import Image

from videoinfer.eval.report.assemble import assemble
from videoinfer.eval.report.clips import clips_of
from videoinfer.eval.report.examples import GAP, side_by_side
from videoinfer.eval.report.idle import Load, LoadMeter
from videoinfer.eval.report.markdown import markdown
from videoinfer.eval.report.methods import Method
from videoinfer.eval.report.page import page
from videoinfer.eval.report.pareto import front, pareto
from videoinfer.eval.report.plots import plot_names, write_plots
from videoinfer.eval.report.prompts import Prompt
from videoinfer.eval.report.quality_file import Measured, QualityFile
from videoinfer.eval.report.speed import speeds
from videoinfer.eval.report.table import rows_of
from videoinfer.eval.report.timing import read_timing, time_clips, timed_clips
from videoinfer.eval.report.words import best, table
from videoinfer.request import GenerationRequest
from videoinfer.result import VideoResult

KEYS = [
    *("name", "setting", "workflow", "videos_per_hour", "speedup", "forwards", "block_forwards_at_depth", "rho_mean"),
    *("rho_p90", "psnr_mean", "psnr_worst_decile", "psnr_object", "ssim_mean", "checker_lost", "motion_ratio"),
    *("audio_error", "peak_memory_mb", "violation_rate", "n"),
]
METHODS = [
    Method("dense", 4),
    Method("fewer-steps@2", 2),
    Method("fewer-steps@8", 8),
    Method("first-block@0.1", 4, "first-block@tau=0.1"),
    Method("never@9", 4, "never"),
]
WORKFLOWS = ("t2va", "ref2va")
PROMPTS = [
    Prompt(workflow, number, GenerationRequest(prompt=f"<b>|red| {number}", seed=number), {"colour": "red"})
    for workflow in WORKFLOWS
    for number in range(3)
]
CLIPS = clips_of(PROMPTS, dict.fromkeys(WORKFLOWS, METHODS))
RHO = {"dense": 0.0, "fewer-steps@2": 0.4, "fewer-steps@8": 0.05, "first-block@0.1": 0.2, "never@9": 0.0}


def cache(name: str, computed: list[bool], warnings: list[str]) -> dict:
    return {
        "computed": sum(computed),
        "forwards": 4,
        "block_forwards_at_depth": {"depth": 50, "count": sum(50 if c else 1 for c in computed)},
        "warnings": warnings,
        "guards": {"not finite": 1} if name.startswith("first") else {},
        "sigmas": {"video": [1.0, 0.75, 0.5, 0.25, 0.0], "audio": [1.0, 0.9, 0.8, 0.7, 0.0]},
        "steps": [{"step": k, "computed": c, "reason": "x"} for k, c in enumerate(computed)],
    }


def made(clip) -> Measured:
    name, number = clip.method.name, clip.prompt.number
    sidecar = {
        "actual": {"steps": clip.method.steps},
        "latents": {"video": name, "audio": name},
        "peak_memory_mb": 100.0 + number,
        "device": "cpu",
        "dtype": "float32",
        "threads": 1,
        "versions": {"torch": "2"},
        "model": {"name": "demo"},
    }
    if name.startswith("first"):
        sidecar["cache"] = cache(name, [True, False, True, number == 0], [])
    if name.startswith("never"):
        sidecar["cache"] = cache(name, [True] * 4, ["the cache never answered no step: all 4 were computed (x 4)."])
    rho = RHO[name] * (1.0 + number)
    quality = {
        "rho": {"video": rho, "audio": rho / 2.0},
        "rho_worst_frame": 2.0 * rho,
        "psnr": 100.0 if not rho else 30.0 - 10.0 * rho,
        "psnr_worst_frame": 20.0,
        "psnr_object": 100.0 if not rho else 25.0 - 10.0 * rho,
        "object_moves": True,
        "ssim": 1.0 - rho / 2.0,
        "motion_ratio": 1.0 - rho / 4.0,
        "audio_error": rho,
        "audio_distance": rho,
        "lost": ["colour"] if rho > 0.7 else [],
        "gained": [],
    }
    return Measured(clip, sidecar, quality, {"colour": rho <= 0.7, "pan": False})


def timing(clips, rounds=3, idle=True) -> dict:
    """A machine that gets slower, which ratios within a round do not see."""
    samples = []
    for number, clip in itertools.product(range(rounds), clips):
        denoise = clip.method.steps * (1.0 + number)
        if clip.method.name.startswith("first"):
            denoise /= 1.6
        samples.append({"clip": clip.name, "round": number, "denoise": denoise, "whole": denoise + 1.0})
    about = {"at": "2026-01-01 00:00", "rounds": rounds, "load_average": 0.5, "others": 0.01, "load": str(Load(0.5, 3))}
    return {"clips": [clip.name for clip in clips], **about, "idle": idle, "samples": samples}


@pytest.fixture(scope="module")
def told() -> dict:
    clips = [clip for clip in CLIPS if clip.name != CLIPS[1].name]
    return assemble(
        CLIPS, [made(clip) for clip in clips], {CLIPS[1].name: "failed: why"}, timing(CLIPS), "demo", 4, 0.5
    )


def row(told: dict, name: str, workflow: str = "ref2va") -> dict:
    (found,) = [one for one in told["methods"] if (one["name"], one["workflow"]) == (name, workflow)]
    return found


def test_rows_have_the_keys_that_are_promised_in_order(told):
    assert all(list(one) == KEYS for one in told["methods"])
    expected = [(w, m.name) for w in WORKFLOWS for m in METHODS]
    assert sorted((one["workflow"], one["name"]) for one in told["methods"]) == sorted(expected)
    assert json.loads(json.dumps(told, allow_nan=False))["methods"] == told["methods"]


def test_a_row_says_what_was_measured(told):
    first = row(told, "first-block@0.1")
    assert first["setting"] == "first-block@tau=0.1"
    assert first["forwards"] == pytest.approx((3 + 2 + 2) / 3)
    assert first["block_forwards_at_depth"] == pytest.approx((151 + 102 + 102) / 3)
    assert first["rho_mean"] == pytest.approx(0.2 * 2) and first["rho_p90"] == pytest.approx(0.6)
    assert first["violation_rate"] == pytest.approx(1 / 3)
    assert first["speedup"] == pytest.approx(1.6)
    assert first["videos_per_hour"] == pytest.approx(3600 / (2 * 4 / 1.6 + 1))
    assert (first["n"], first["peak_memory_mb"], first["checker_lost"]) == (3, 102.0, 0)
    fewer = row(told, "fewer-steps@2")
    assert (fewer["forwards"], fewer["block_forwards_at_depth"], fewer["speedup"]) == (2, 100, 2)
    assert fewer["checker_lost"] == 2
    assert row(told, "fewer-steps@2", "t2va")["n"] == 2
    dense = row(told, "dense")
    assert (dense["speedup"], dense["psnr_mean"], dense["rho_mean"], dense["violation_rate"]) == (1, 100, 0, 0)


def test_what_a_user_must_know_is_told(told):
    text = "\n".join(told["warnings"])
    assert "never@9, in every clip: the cache never answered no step" in text
    assert "first-block@0.1: steps were computed for reasons not expected (not finite 3)" in text
    assert "1 clips are missing" in text and "not idle" not in text
    assert told["missing"] == [{"clip": CLIPS[1].name, "reason": "failed: why"}]
    assert told["proportions"]["ref2va"] == {"fewer-steps@8": pytest.approx(0.1)}
    busy = assemble(CLIPS, [made(clip) for clip in CLIPS], {}, timing(CLIPS, idle=False), "demo", 4, None)
    assert any("not idle" in warning for warning in busy["warnings"])
    assert row(busy, "dense")["violation_rate"] is None


def test_clips_of_other_threads_and_prompts_without_dense_are_told():
    measured = [made(clip) for clip in CLIPS[1:]]
    measured[3].sidecar["threads"] = 2
    found = assemble(CLIPS, measured, {}, None, "demo", 4, None)
    assert any("1 threads; cpu, float32, 2 threads" in warning for warning in found["warnings"])
    assert "dense clip" in found["missing"][0]["reason"]
    assert row(found, "dense")["speedup"] is None and row(found, "dense")["videos_per_hour"] is None


def test_steps_that_were_computed_are_shares_of_clips(told):
    actions = {(d["workflow"], d["name"]): d["actions"] for d in told["details"]}
    first = actions["ref2va", "first-block@0.1"]
    assert first["computed"] == pytest.approx([1, 0, 1, 1 / 3]) and first["sigmas"] == [1.0, 0.75, 0.5, 0.25, 0.0]
    assert actions["ref2va", "dense"] is None


def test_speeds_are_ratios_within_a_round_and_need_a_dense_sample():
    samples = timing(CLIPS)["samples"]
    found = speeds(CLIPS, samples)["t2va", "first-block@0.1"]
    assert found.speedup_spread == pytest.approx((1.6, 1.6))
    assert found.denoise_seconds == pytest.approx(5.0) and found.denoise_spread == pytest.approx((2.5, 7.5))
    assert found.clip_speedup == pytest.approx(9 / 6) and found.samples == 9
    names = {clip.name for clip in CLIPS if clip.method.name == "dense"}
    assert speeds(CLIPS, [sample for sample in samples if sample["clip"] not in names]) == {}
    assert speeds(CLIPS, []) == {}


class Stub:
    """Writes what an engine writes, and says that its n-th clip took n seconds."""

    def __init__(self) -> None:
        self.made = []

    def generate(self, request: GenerationRequest) -> VideoResult:
        paths = [request.output.folder / f"{request.id}{ending}" for ending in (".mp4", ".json")]
        for path in paths:
            path.touch(exist_ok=False)
        self.made.append((request.id, request.output.latents))
        seconds = float(len(self.made))
        return VideoResult(*paths, resolved=None, timings={"denoise": seconds, "total": seconds + 1}, peak_memory_mb=1)


def test_rounds_go_to_and_fro_over_the_first_prompts_behind_a_warm_up(tmp_path):
    engine, path = Stub(), tmp_path / "timing.json"
    clips = timed_clips(CLIPS)
    assert {clip.prompt.number for clip in clips} == {0, 1}
    told = time_clips(engine, clips, 3, path, lambda _: None)
    names = [clip.name for clip in clips]
    kinds = {(clip.prompt.workflow, clip.method.name.partition("@")[0]) for clip in clips}
    made = [name for name, _ in engine.made]
    assert made[-60:] == [*names, *names[::-1], *names]
    assert len(made) == 60 + len(kinds) and not any(latents for _, latents in engine.made)
    assert [sample["clip"] for sample in told["samples"]] == made[-60:]
    assert told["samples"][0] == {"clip": names[0], "round": 0, "denoise": len(kinds) + 1, "whole": len(kinds) + 2}
    assert [entry.name for entry in tmp_path.iterdir()] == ["timing.json"]
    assert read_timing(path, clips, 3) == told


def test_a_timing_holds_for_its_own_clips_and_rounds(tmp_path):
    path = tmp_path / "timing.json"
    assert read_timing(path, CLIPS, 3) is None
    path.write_text(json.dumps(timing(CLIPS)))
    assert read_timing(path, CLIPS, 3) is not None
    assert read_timing(path, CLIPS, 4) is None and read_timing(path, CLIPS[1:], 3) is None
    path.write_text("{")
    assert read_timing(path, CLIPS, 3) is None


@pytest.mark.parametrize("count", [1, 2, 7, 13])
def test_the_front_is_what_nothing_beats(count):
    rng = random.Random(count)
    points = [(rng.randrange(4), rng.randrange(4)) for _ in range(count)]  # with equal ones
    beaten = {k for k, p in enumerate(points) for q in points if q != p and q[0] >= p[0] and q[1] >= p[1]}
    assert front(points) == [k for k in range(count) if k not in beaten]
    assert front([]) == []


def test_the_best_at_a_speed_is_the_best_of_all_that_are_so_fast(told):
    found = {(p["workflow"], p["axis"], p["quality"]): p for p in told["pareto"]}
    assert len(found) == 8
    wall = found["ref2va", "wall", "rho_mean"]
    assert wall["at"]["1.5"]["name"] == "first-block@0.1" and wall["at"]["1.5"]["speed"] == pytest.approx(1.6)
    assert wall["at"]["2"]["name"] == "fewer-steps@2" and wall["at"]["3"] is None
    assert wall["front"][-1] == "fewer-steps@2" and "fewer-steps@8" not in wall["front"]
    priced = found["ref2va", "priced", "psnr_object"]
    assert priced["at"]["1.5"]["speed"] == pytest.approx(200 / (355 / 3))
    untimed = assemble(CLIPS, [made(clip) for clip in CLIPS], {}, None, "demo", 4, None)
    assert {entry["axis"] for entry in untimed["pareto"]} == {"priced"}


def test_a_speed_just_below_its_target_counts():
    rows = [
        {"workflow": "t2va", "name": name, "speedup": s, "rho_mean": 0.1, "psnr_object": 20.0}
        for name, s in (("near", 1.97), ("far", 1.95))
    ]
    for entry in pareto(rows, [{"priced_speedup": None}] * 2):
        assert entry["at"]["2"]["name"] == "near"


def test_words_pages_and_plots(told, tmp_path):
    assert [len(line) for line in table(told, "t2va")] == [len(table(told, "t2va")[0])] * (len(METHODS) + 1)
    assert best(told, "t2va")[1][2].startswith("first-block@0.1 (1.60x, ")
    text = markdown(told)
    for part in ("| dense |", "first-block@0.1", "To keep proportions", "plots/t2va-wall.png", "never answered"):
        assert part in text
    write_plots(told, tmp_path / "plots")
    for workflow in WORKFLOWS:
        names = [name for name, _ in plot_names(told, workflow)]
        assert names == [f"{workflow}-{kind}.png" for kind in ("wall", "priced", "actions")]
        for name in names:
            with Image.open(tmp_path / "plots" / name) as picture:
                assert picture.width > 1000
    shown = next(clip for clip in CLIPS if clip.method.name == "first-block@0.1")
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / f"{shown.name}.png").touch()
    html = page(told, "clips", "pictures", tmp_path)
    assert f'src="clips/{shown.name}.mp4"' in html and f'src="pictures/{shown.name}.png"' in html
    assert "<script" not in html and "<b>|red|" not in html and "http" not in html
    write_plots({**told, "methods": [], "details": []}, tmp_path / "none")
    assert list((tmp_path / "none").iterdir()) == []


def test_rows_of_no_clips():
    assert rows_of([], {}, None) == ([], [])


def test_measures_are_kept_for_the_latents_that_they_were_made_of(tmp_path):
    path = tmp_path / "quality.jsonl"
    measured, dense = made(CLIPS[3]), made(CLIPS[0]).sidecar
    QualityFile(path).add(measured, dense)
    assert QualityFile(path).find(CLIPS[3], measured.sidecar, dense) == measured
    assert QualityFile(path).find(CLIPS[2], measured.sidecar, dense) is None
    assert QualityFile(path).find(CLIPS[3], measured.sidecar, {"latents": "other"}) is None
    assert QualityFile(path).find(CLIPS[3], {"latents": "other"}, dense) is None
    path.write_text(path.read_text() + path.read_text()[:20])  # a crash while writing
    other = made(CLIPS[2])
    QualityFile(path).add(other, dense)
    kept = QualityFile(path)
    assert kept.find(CLIPS[3], measured.sidecar, dense) == measured
    assert kept.find(CLIPS[2], other.sidecar, dense) == other


def test_a_picture_shows_both_clips_and_their_difference():
    dense = np.full((7, 4, 6, 3), 100, np.uint8)
    ours = dense.copy()
    ours[3, 1, 2] = (90, 100, 200)
    picture = side_by_side(ours, dense)
    assert picture.shape == (3 * 4 + 2 * GAP, 3 * 6 + 2 * GAP, 3)
    top = 4 + GAP
    assert (picture[top + 1, 6 + GAP + 2] == (90, 100, 200)).all()
    assert (picture[top + 1, 2 * (6 + GAP) + 2] == (40, 0, 255)).all()
    assert picture[:4, 2 * (6 + GAP) :].max() == 0  # the first moment is alike


def test_own_work_is_no_load_by_others(monkeypatch):
    import videoinfer.eval.report.idle as idle

    clock = iter([10.0, 14.0])
    monkeypatch.setattr(idle, "_busy", iter([100.0, 108.0]).__next__)
    monkeypatch.setattr(idle, "_own", iter([50.0, 57.0]).__next__)
    monkeypatch.setattr(idle.time, "monotonic", lambda: next(clock))
    load = LoadMeter().read()
    assert load.others == 0.25 and load.idle
    assert not Load(0.0, 0.3).idle
