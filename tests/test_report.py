"""`videoinfer report` from the command line to its files, on the smallest model that runs."""

import json
from pathlib import Path

import pytest

from videoinfer.apps import cli

PROMPTS = ("a small red circle moves right on a black background", "a red circle")


def job_file(folder: Path, lines: list[dict]) -> Path:
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def arguments(model: Path, prompts: Path, out: Path, *more: object) -> list[str]:
    given = ("report", "--model", model, "--prompts", prompts, "--steps", 4, "-o", out, "--device", "cpu", *more)
    return [str(word) for word in given]


@pytest.mark.slow
def test_a_report_is_made_once(tiny_h3_folder, tmp_path, capfd):
    from videoinfer.denoise.cache_report import REAL_DEPTH
    from videoinfer.jobs import JobQueue, State, open_journal

    prompts, out = job_file(tmp_path, [{"prompt": text, "steps": 9} for text in PROMPTS]), tmp_path / "out"
    methods = "fewer-steps@2,static@0;2,first-block@0.0000001"
    command = arguments(tiny_h3_folder, prompts, out, "--methods", methods, "--instances", 1, "--threads", 1)
    command += ["--quality-only", "--budget", "0.01"]
    assert cli.main(command) == 0
    assert capfd.readouterr().out.strip() == str(out / "report.md")
    told = json.loads((out / "report.json").read_text())
    rows = {row["name"]: row for row in told["methods"]}
    assert list(rows) == ["dense", "fewer-steps@2", "static@0;2", "first-block@0.0000001"]
    assert all(row["n"] == 2 and row["speedup"] is None and row["videos_per_hour"] is None for row in rows.values())
    dense = rows["dense"]
    assert (dense["rho_mean"], dense["psnr_mean"], dense["ssim_mean"], dense["forwards"]) == (0, 100, 1, 4)
    assert dense["block_forwards_at_depth"] == 4 * REAL_DEPTH and told["depth"] == REAL_DEPTH
    assert (rows["fewer-steps@2"]["forwards"], rows["static@0;2"]["forwards"]) == (2, 2)
    assert rows["static@0;2"]["block_forwards_at_depth"] == 2 * REAL_DEPTH
    assert rows["fewer-steps@2"]["rho_mean"] > 0.01 and rows["fewer-steps@2"]["violation_rate"] == 1
    never = rows["first-block@0.0000001"]
    assert (never["forwards"], never["rho_mean"], never["block_forwards_at_depth"]) == (4, 0, 4 * REAL_DEPTH)
    assert any("first-block@0.0000001, in every clip" in warning for warning in told["warnings"])
    assert told["missing"] == [] and told["timing"] is None
    for name in ("report.md", "report.html", "plots/t2va-priced.png", "plots/t2va-actions.png", "clips/index.html"):
        assert (out / name).stat().st_size > 0
    assert len(list((out / "clips").glob("*.latents.safetensors"))) == 8
    assert len(list((out / "pictures").glob("*.png"))) == 6
    queue = JobQueue(open_journal(out / ".videoinfer" / "journal.sqlite"))
    assert queue.counts() == {State.DONE: 8}

    # Once more: nothing is made, decoded or measured, and a method that comes in is all that is.
    kept = {
        path: path.stat().st_mtime_ns for folder in ("clips", "pictures") for path in (out / folder).glob("*.[mps]*")
    }
    for path in (out / "clips").glob("*.latents.safetensors"):
        path.rename(path.with_suffix(".away"))
    assert cli.main([*command, "--json"]) == 0
    again = json.loads(capfd.readouterr().out)
    assert again["methods"] == told["methods"]
    assert {path: path.stat().st_mtime_ns for path in kept if path.exists()}.items() <= kept.items()
    assert len((out / "clips" / "quality.jsonl").read_text().splitlines()) == 8

    # A clip whose latents are gone and whose measures are too is named with the remedy.
    (out / "clips" / "quality.jsonl").unlink()
    assert cli.main(command) == 2
    assert "Remove" in capfd.readouterr().err


def test_what_is_asked_wrongly_runs_nothing(tiny_h3_folder, tmp_path, capsys):
    prompts, out = job_file(tmp_path, [{"prompt": "x"}]), tmp_path / "out"
    for more, reason in (
        (("--methods", "turbo"), "no method 'turbo'"),
        (("--methods", "first-block@x"), "first-block@x"),
        (("--methods", "static@2,magcache"), "videoinfer cache calibrate"),
        (("--methods", "cache-dit:F1B1W4MC3R0.08"), "of 2 blocks"),
        (("--methods", "dense", "--workflow", "t2v"), "t2va, fl2va, ref2va"),
        (("--methods", "dense", "--workflow", "t2va,ref2va"), "no prompt for ref2va"),
        (("--methods", "dense", "--settings", "all"), "shipped or sweep"),
        (("--methods", "dense", "--rounds", "0"), "1 or more"),
        (("--methods", "dense", "--budget", "0"), "more than 0"),
        (("--methods", "dense", "--calibration", tmp_path / "none.json"), "cannot be read"),
    ):
        assert cli.main(arguments(tiny_h3_folder, prompts, out, *more)) == 2
        assert reason in capsys.readouterr().err
    prompts.write_text('{"prompt": "x", "sede": 1}\n')
    assert cli.main(arguments(tiny_h3_folder, prompts, out, "--methods", "dense")) == 2
    assert "line 1" in capsys.readouterr().err
    assert cli.main(["report", "-m", str(tiny_h3_folder), "--methods", "dense", "-o", str(out)]) == 2
    assert "--prompts" in capsys.readouterr().err
    assert not out.exists()
