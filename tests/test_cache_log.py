"""`--cache` and `videoinfer cache ...` as a user meets them, on the smallest model that runs."""

import json
from pathlib import Path

import pytest

from videoinfer.apps import cli

PROMPT = "a small red circle"


@pytest.fixture(scope="module")
def clips(tiny_h3_folder, tmp_path_factory) -> Path:
    """One clip for each of several policies that decide by values, 8 steps each, in `<policy>.mp4` and `.json`."""
    folder = tmp_path_factory.mktemp("clips")
    for name, setting in (
        ("first-block", "first-block@0.05"),
        ("easycache", "easycache@0.3,warmup=2"),
        ("taylorseer", "taylorseer@3"),
        ("dense", None),
    ):
        line = ["generate", PROMPT, "-m", str(tiny_h3_folder), "--steps", "8", "-o", str(folder / f"{name}.mp4")]
        assert cli.main([*line, *(["--cache", setting] if setting else [])]) == 0
    return folder


def report(path: Path) -> dict:
    return json.loads(path.read_text())["cache"]


@pytest.mark.parametrize("name", ["first-block", "easycache", "taylorseer"])
def test_a_replay_decides_as_the_run_did(clips, capsys, name):
    assert cli.main(["cache", "replay", str(clips / f"{name}.json"), "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    logged = report(clips / f"{name}.json")["steps"]
    assert 0 < sum(entry["computed"] for entry in logged) < 8
    for replayed, entry in zip(steps, logged, strict=True):
        assert (replayed["computed"], replayed["reason"]) == (entry["computed"], entry["reason"])
        assert replayed.get("weights", []) == pytest.approx(entry.get("weights", []), abs=1e-5)


def test_a_replay_with_another_threshold_is_another_answer(clips, capsys):
    path = str(clips / "first-block.json")
    assert cli.main(["cache", "replay", path, "--cache", "first-block@0"]) == 0
    assert "8 of 8 computed" in capsys.readouterr().out
    assert cli.main(["cache", "replay", path, "--cache", "first-block@1000"]) == 0
    assert "1 of 8 computed" in capsys.readouterr().out


def test_a_plot_tells_every_step_with_its_reason(clips, capsys):
    assert cli.main(["cache", "plot", str(clips / "first-block.json")]) == 0
    told = capsys.readouterr().out
    assert told.count("sigma ") == 8 and "probe_change" in told and "warm-up" in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["replay", "dense.json"], "no cache report"),
        (["plot", "nothing.json"], "nothing.json"),
        (["replay", "first-block.json", "--cache", "teacache@0.1,polynomial=1;0"], "modulated_change"),
        (["replay", "first-block.json", "--cache", "nonsense"], "no policy 'nonsense'"),
        (["calibrate", "-o", "first-block.json", "-m", "demo"], "no calibration file"),
        (["calibrate", "-o", "new/calibration.json"], "no folder"),
        (["calibrate", "-o", "c.json", "-m", "some/model"], "--prompts"),
        (["calibrate", "-o", "c.json", "-n", "0"], "-n 0"),
        (["calibrate", "-o", "c.json", "--workflow", "t2v"], "t2va"),
    ],
)
def test_wrong_use_is_told(clips, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(clips)
    assert cli.main(["cache", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (clips / "c.json").exists()


def test_a_wrong_cache_is_refused_before_the_model_is_opened(tmp_path, capsys):
    assert cli.main(["generate", PROMPT, "--cache", "first-block", "-m", str(tmp_path / "nowhere")]) == 2
    assert "lacks tau" in capsys.readouterr().err


def test_a_calibration_is_added_to_its_file_once(tiny_h3_folder, tmp_path, capsys):
    jobs = tmp_path / "jobs.jsonl"
    jobs.write_text(json.dumps({"prompt": PROMPT}) + "\n")
    path = tmp_path / "calibration.json"
    line = ["cache", "calibrate", "-o", str(path), "-m", str(tiny_h3_folder), "--prompts", str(jobs)]
    assert cli.main([*line, "--steps", "3"]) == 0
    assert cli.main([*line, "--steps", "2"]) == 0
    before = path.read_bytes()
    assert [entry["steps"] for entry in json.loads(before)["entries"]] == [3, 2]
    assert cli.main([*line, "--steps", "3"]) == 2
    assert "already" in capsys.readouterr().err and path.read_bytes() == before


def test_a_cache_that_never_answers_is_told(tiny_h3_folder, tmp_path, capsys):
    line = ["generate", PROMPT, "-m", str(tiny_h3_folder), "--steps", "3", "-o", str(tmp_path / "clip.mp4")]
    assert cli.main([*line, "--cache", "first-block@0"]) == 0
    told = capsys.readouterr().err
    assert "answered no step: all 3 were computed" in told and told.count("answered no step") == 1
