"""`videoinfer batch` and `videoinfer jobs` over the real engine on the smallest model that runs."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from videoinfer.apps import cli
from videoinfer.engine import VideoEngine
from videoinfer.jobs import JobQueue, State, open_journal
from videoinfer.media import probe_mp4
from videoinfer.request import GenerationRequest, Output

PROMPTS = ("a small red circle", "a red circle moves right", "black background")


def job_file(folder: Path, lines: list[dict]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "jobs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def batch(*arguments: object) -> tuple[int, str]:
    """The command in a process of its own, as a shell runs it."""
    command = [sys.executable, "-P", "-m", "videoinfer.apps.cli", "batch", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


def queue_of(folder: Path) -> JobQueue:
    return JobQueue(open_journal(folder / ".videoinfer" / "journal.sqlite"))


def digests(folder: Path) -> dict[tuple[str, int], dict]:
    found = {}
    for job in queue_of(folder).jobs(State.DONE):
        request = json.loads(job.request)
        found[request["prompt"], request.get("seed", 0)] = (job.result or {})["latents"]
    return found


@pytest.fixture(scope="module")
def undisturbed(tiny_h3_folder, tmp_path_factory) -> dict[tuple[str, int], dict]:
    """Digests of the latents that a bare engine makes, one thread as the workers have."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    folder, found = tmp_path_factory.mktemp("bare"), {}
    try:
        with VideoEngine.from_pretrained(str(tiny_h3_folder), device="cpu") as engine:
            for prompt in PROMPTS:
                for seed in (0, 1):
                    request = GenerationRequest(prompt=prompt, seed=seed, steps=2, output=Output(folder=folder))
                    found[prompt, seed] = engine.generate(request).record["latents"]
    finally:
        torch.set_num_threads(threads)
    return found


def command(tiny_h3_folder: Path, folder: Path, out: Path) -> list[object]:
    """Every prompt with two seeds, one thread a worker."""
    file = job_file(folder, [{"prompt": prompt} for prompt in PROMPTS])
    return [file, "-m", tiny_h3_folder, "-o", out, "--steps", 2, "--repeat", 2, "--threads", 1]


@pytest.fixture(scope="module")
def finished(tiny_h3_folder, tmp_path_factory) -> tuple[list[object], Path]:
    """A batch that two instances made in one phase, with overlap: its command without --instances, and its folder."""
    folder = tmp_path_factory.mktemp("finished")
    arguments = command(tiny_h3_folder, folder, folder / "out")
    code, text = batch(*arguments, "--instances", 2, "--one-phase", "--overlap")
    assert code == 0, text
    assert "Queue completed: 6/6" in text
    return arguments, folder / "out"


def test_latents_are_those_of_a_bare_engine_on_any_instance(finished, undisturbed):
    _, out = finished
    assert digests(out) == undisturbed
    assert {attempt["instance"] for job in queue_of(out).jobs() for attempt in queue_of(out).attempts(job.id)} == {0, 1}
    for job in queue_of(out).jobs():
        assert probe_mp4(out / f"{job.name}.mp4")["frames"] == 124
        sidecar = json.loads((out / f"{job.name}.json").read_text())
        assert sidecar["latents"] == (job.result or {})["latents"]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["states"] == {"done": 6} and summary["run"]["made"] == 6
    assert (out / "index.html").read_text().count("<video") == 6
    assert len((out / "jobs.csv").read_text().splitlines()) == 7


def test_the_same_command_once_more_makes_nothing(finished):
    arguments, out = finished
    written = {path: path.stat().st_mtime_ns for path in out.glob("*.mp4")}
    assert batch(*arguments, "--instances", 1)[0] == 0
    assert json.loads((out / "summary.json").read_text())["run"]["made"] == 0
    assert {path: path.stat().st_mtime_ns for path in out.glob("*.mp4")} == written


def test_ctrl_c_finishes_the_job_in_hand_and_the_next_run_the_rest(tiny_h3_folder, tmp_path, undisturbed):
    """Started with the encoders as a phase of their own, ended in one phase: the clips are the same."""
    out = tmp_path / "out"
    arguments = command(tiny_h3_folder, tmp_path, out)
    line = [sys.executable, "-P", "-m", "videoinfer.apps.cli", "batch", *map(str, arguments)]
    line += ["--instances", "1", "--two-phase", "--json"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 240
    while not list(out.glob("*.mp4")) and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out_text, text = process.communicate(timeout=120)
    assert process.returncode == 130, text
    assert json.loads(out_text)["states"]["done"] >= 1  # one object, the summary
    assert len(list((out / ".videoinfer" / "conditionings").glob("*.safetensors"))) == len(PROMPTS)
    done = len(list(out.glob("*.mp4")))
    assert 1 <= done < 6 and not list(out.glob("*.part"))
    assert queue_of(out).counts() == {State.DONE: done, State.ENCODED: 6 - done}
    assert batch(*arguments, "--instances", 2, "--one-phase")[0] == 0
    assert digests(out) == undisturbed


@pytest.mark.slow
def test_a_reference_that_disappears_fails_its_own_job_only(tiny_h3_folder, tmp_path):
    picture = tmp_path / "in" / "shape.png"
    lines = [{"prompt": "red", "references": [{"kind": "image", "path": "shape.png"}]}, {"prompt": "black"}]
    file = job_file(tmp_path / "in", lines)
    Image.new("RGB", (32, 32), "red").save(picture)
    out = tmp_path / "out"
    common = ("-m", tiny_h3_folder, "-o", out, "--steps", 1, "--threads", 1, "--instances", 1)
    assert cli.main(["batch", *map(str, (file, *common, "--dry-run"))]) == 0
    code, text = batch(file, *common, "--max-attempts", 1)
    assert code == 0, text
    # Made again from nothing: now the picture is gone.
    name = next(job.name for job in queue_of(out).jobs() if "shape.png" in job.request)
    (out / f"{name}.mp4").unlink()
    queue_of(out).redo(next(job.id for job in queue_of(out).jobs() if job.name == name), "test")
    (out / f"{name}.json").unlink()
    picture.rename(picture.with_suffix(".gone"))
    code, text = batch(job_file(tmp_path / "other", [{"prompt": "black", "steps": 1}]), *common)
    assert code == 1
    assert queue_of(out).counts() == {State.FAILED: 1, State.DONE: 1}
    assert "shape.png" in json.loads((out / "summary.json").read_text())["not_done"][0]["reason"]
    picture.with_suffix(".gone").rename(picture)
    assert cli.main(["jobs", "retry", str(out)]) == 0
    code, text = batch(file, *common)
    assert code == 0, text


def test_bad_lines_run_nothing_and_are_all_named(tiny_h3_folder, tmp_path, capsys):
    lines = [
        {"prompt": "x"},
        {"prompt": "x", "num_frames": 9999},
        {"prompt": "x", "sede": 1},
        {"prompt": "x", "guidance": 3},
    ]
    file = job_file(tmp_path, [*lines, {"prompt": "x", "references": [{"kind": "image", "path": "no.png"}]}])
    assert cli.main(["batch", str(file), "-m", str(tiny_h3_folder), "-o", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    for part in ("4 bad lines", "line 2: ", "9999", "line 3: ", "seed", "line 4: ", "guidance", "line 5: ", "no.png"):
        assert part in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nothing.jsonl"], "cannot be read"),
        (["jobs.jsonl", "--instances", "many"], "auto"),
        (["jobs.jsonl", "--instances", "0"], "too few"),
        (["jobs.jsonl", "--repeat", "0"], "at least 1"),
        (["jobs.jsonl", "--gpus", "a"], "card numbers"),
        (["jobs.jsonl", "--gpus", "0", "--device", "cpu"], "CPU"),
        (["jobs.jsonl", "--time-limit", "0"], "more than 0"),
        (["jobs.jsonl", "--facts", "x.json"], "--dry-run"),
        (["jobs.jsonl", "--facts", "x.json", "--dry-run"], "facts file"),
    ],
)
def test_bad_usage_is_told_before_anything_runs(tiny_h3_folder, tmp_path, monkeypatch, capsys, arguments, reason):
    monkeypatch.chdir(tmp_path)
    job_file(tmp_path, [{"prompt": "x"}])
    assert cli.main(["batch", *arguments, "-m", str(tiny_h3_folder), "-o", "out"]) == 2
    assert reason in capsys.readouterr().err
    assert not Path("out").exists()


def test_a_dry_run_prints_the_plan_of_another_box(tiny_h3_folder, tmp_path, capsys):
    file = job_file(tmp_path, [{"prompt": "x"}])
    facts = Path(__file__).parent / "facts" / "8x96gb-pcie.json"
    arguments = ["batch", file, "-m", tiny_h3_folder, "-o", tmp_path / "out", "--dry-run", "--facts", facts]
    assert cli.main([*map(str, arguments), "--instances", "16"]) == 0
    told = capsys.readouterr().out
    assert "16 instances" in told and told.count("cuda:7") == 2
    assert not (tmp_path / "out").exists()


def test_a_folder_of_another_queue_is_not_mixed(finished, tiny_h3_folder, tmp_path, capsys):
    arguments, made = finished
    out = shutil.copytree(made, tmp_path / "out")
    common = ["-m", str(tiny_h3_folder), "-o", str(out), "--steps", "1", "--threads", "1", "--instances", "1"]
    other = job_file(tmp_path / "b", [{"prompt": "black"}])
    assert cli.main(["batch", str(other), *common]) == 2
    assert "another queue" in capsys.readouterr().err
    assert cli.main(["batch", str(arguments[0]), "-o", str(out), "-m", "demo"]) == 2
    assert "queue for the model" in capsys.readouterr().err
    assert cli.main(["jobs", "add", str(out), str(other)]) == 0
    assert "1 jobs added" in capsys.readouterr().out
    assert queue_of(out).counts() == {State.DONE: 6, State.QUEUED: 1}


def test_jobs_are_shown_cancelled_and_moved_up(tmp_path, capsys):
    from videoinfer.eval.stub_batch import stub_jobs

    journal = open_journal(tmp_path / ".videoinfer" / "journal.sqlite", create=True)
    jobs = stub_jobs(GenerationRequest(prompt=f"stub {k}") for k in range(3))
    JobQueue(journal).add(jobs)
    assert cli.main(["jobs", "cancel", str(tmp_path), jobs[0].id[:8]]) == 0
    assert cli.main(["jobs", "priority", str(tmp_path), "5", jobs[2].id]) == 0
    assert cli.main(["jobs", "pause", str(tmp_path)]) == 0
    capsys.readouterr()
    assert cli.main(["jobs", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["counts"] == {"cancelled": 1, "queued": 2} and told["wish"] == "pause"
    assert [job["priority"] for job in told["jobs"]] == [0, 0, 5]
    assert cli.main(["jobs", str(tmp_path)]) == 0
    assert jobs[1].name in capsys.readouterr().out
    assert cli.main(["jobs", "cancel", str(tmp_path), "zzz"]) == 2
    assert cli.main(["jobs", str(tmp_path / "nowhere")]) == 2
    assert "no journal" in capsys.readouterr().err
