"""The runner over real worker processes with a stub for the model: crashes, hangs, cancels, and two of them at once."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from videoinfer.errors import RequestError
from videoinfer.eval.stub_batch import run_stubs, stub_jobs
from videoinfer.jobs import JobQueue, State, open_journal
from videoinfer.jobs.runner import RunnerOptions, WorkersLost
from videoinfer.media import probe_mp4
from videoinfer.request import GenerationRequest

FAST = RunnerOptions(silence=20.0)


def requests(*prompts: str, **fields):
    return [GenerationRequest(prompt=prompt, seed=k, **fields) for k, prompt in enumerate(prompts)]


def count(folder: Path, what: str, job: str) -> int:
    path = folder / ".videoinfer" / "faults" / f"{what} {job}"
    return path.stat().st_size if path.exists() else 0


def clips(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.mp4"))


def workers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if "placement.worker" in _line(child)]


def _line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def test_every_job_is_made_once_and_its_clip_plays(tmp_path):
    jobs = stub_jobs(requests(*["stub 0.05"] * 6))
    queue, _, _ = run_stubs(tmp_path, jobs, 2, FAST)
    assert queue.counts() == {State.DONE: 6}
    assert clips(tmp_path) == sorted(job.name for job in jobs)
    for job in jobs:
        assert probe_mp4(tmp_path / f"{job.name}.mp4")["frames"] == 2
        assert count(tmp_path, "made", job.id) == 1
    assert not list(tmp_path.glob("*.part")) and not workers()


def test_a_second_run_makes_nothing_again_and_a_missing_clip_anew(tmp_path):
    jobs = stub_jobs(requests("stub 0.01", "stub 0.02", "stub 0.03"))
    run_stubs(tmp_path, jobs, 1, FAST)
    gone, changed, kept = jobs
    (tmp_path / f"{gone.name}.mp4").unlink()
    (tmp_path / f"{changed.name}.mp4").write_bytes(b"not a clip")
    queue, _, _ = run_stubs(tmp_path, jobs, 1, FAST)
    assert queue.counts() == {State.DONE: 3}
    assert [count(tmp_path, "made", job.id) for job in (gone, changed, kept)] == [2, 2, 1]
    assert (tmp_path / f"{changed.name}.mp4.changed").read_bytes() == b"not a clip"


@pytest.mark.parametrize("how", ["die", "fail", "full", "memory"])
def test_what_goes_wrong_once_is_tried_again_elsewhere(tmp_path, how):
    jobs = stub_jobs(requests(f"stub 0.05 {how} 1", "stub 0.05", "stub 0.05"))
    queue, _, _ = run_stubs(tmp_path, jobs, 2, FAST)
    assert queue.counts() == {State.DONE: 3}
    attempts = queue.attempts(jobs[0].id)
    assert [attempt["outcome"] for attempt in attempts][1:] == ["done"]
    assert attempts[0]["reason"]
    if how in ("die", "fail"):
        assert attempts[0]["instance"] != attempts[1]["instance"]
    assert queue.job(jobs[0].id).offload == (how == "memory")


@pytest.mark.parametrize(
    ("how", "state", "tries"),
    [("die", State.SET_ASIDE, 3), ("fail", State.FAILED, 3), ("memory", State.SET_ASIDE, 2)],
)
def test_what_goes_wrong_every_time_is_given_up_and_the_others_are_made(tmp_path, how, state, tries):
    jobs = stub_jobs(requests(f"stub 0.01 {how} 99", "stub 0.01", "stub 0.01"))
    queue, _, _ = run_stubs(tmp_path, jobs, 2, FAST)
    assert queue.counts() == {state: 1, State.DONE: 2}
    assert queue.job(jobs[0].id).reason
    assert count(tmp_path, how, jobs[0].id) == tries


def test_a_poison_job_does_not_take_the_only_instance_with_it(tmp_path):
    jobs = stub_jobs(requests("stub 0.02 die 99", "stub 0.01", "stub 0.01"))
    queue, _, _ = run_stubs(tmp_path, jobs, 1, FAST)
    assert queue.counts() == {State.SET_ASIDE: 1, State.DONE: 2}


def test_a_job_over_its_time_limit_is_set_aside(tmp_path):
    jobs = stub_jobs(requests("stub 0.01 hang 99", "stub 0.01"))
    queue, _, _ = run_stubs(tmp_path, jobs, 2, RunnerOptions(time_limit=1.0, max_attempts=2))
    assert queue.counts() == {State.SET_ASIDE: 1, State.DONE: 1}
    assert "1 s" in (queue.job(jobs[0].id).reason or "")


def test_a_set_aside_job_can_be_retried(tmp_path):
    jobs = stub_jobs(requests("stub 0.01 die 2"))
    queue, _, _ = run_stubs(tmp_path, jobs, 1, RunnerOptions(max_attempts=2))
    assert queue.counts() == {State.SET_ASIDE: 1}
    queue.retry([jobs[0].id])
    queue, _, _ = run_stubs(tmp_path, [], 1, FAST)
    assert queue.counts() == {State.DONE: 1}


def test_two_phases_encode_each_conditioning_once_and_first(tmp_path):
    jobs = stub_jobs(requests("stub 0.01", "stub 0.02"))
    twice = stub_jobs(requests("stub 0.01", id="again"))
    twice = [type(job)(**{**vars(job), "conditioning": jobs[0].conditioning}) for job in twice]
    queue, _, _ = run_stubs(tmp_path, [*jobs, *twice], 2, RunnerOptions(two_phase=True))
    assert queue.counts() == {State.DONE: 3}
    assert [count(tmp_path, "encoded", job.conditioning) for job in jobs] == [1, 1]
    events = [json.loads(line) for line in (tmp_path / ".videoinfer" / "events.jsonl").read_text().splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds.index("phase") < kinds.index("done") and "encoded" not in kinds[kinds.index("phase") :]


def test_a_running_job_can_be_cancelled(tmp_path):
    jobs = stub_jobs(requests("stub 30", "stub 0.01", steps=300))

    def cancel(runner):
        if any(hand.step for seat in runner.seats for hand in seat.hands.values()):
            JobQueue(open_journal(tmp_path / ".videoinfer" / "journal.sqlite")).cancel([jobs[0].id])

    queue, _, _ = run_stubs(tmp_path, jobs, 1, FAST, interrupt=cancel)
    assert queue.counts() == {State.CANCELLED: 1, State.DONE: 1}
    assert clips(tmp_path) == [jobs[1].name]


def test_stopping_finishes_what_is_in_hand(tmp_path):
    jobs = stub_jobs(requests("stub 1.5", "stub 1.4"))
    queue, _, _ = run_stubs(
        tmp_path, jobs, 1, FAST, interrupt=lambda runner: runner.stop() if runner.seats[0].hands else None
    )
    assert queue.counts() == {State.DONE: 1, State.QUEUED: 1}


def test_pause_starts_nothing_and_drain_ends_the_runner(tmp_path):
    jobs = stub_jobs(requests("stub 0.01", "stub 0.02"))
    journal = open_journal(tmp_path / ".videoinfer" / "journal.sqlite", create=True)
    JobQueue(journal).set("wish", "pause")
    seen = []

    def watch(runner):
        seen.append(runner.paused)
        if len(seen) == 3:
            JobQueue(journal).set("wish", "drain")

    queue, runner, _ = run_stubs(tmp_path, jobs, 1, FAST, interrupt=watch)
    # The first beat comes before the first worker is ready, so no job was started before the pause was seen.
    assert queue.counts() == {State.QUEUED: 2}
    assert runner.stopping == "drained"


def test_workers_that_cannot_start_end_the_run_with_their_reason(tmp_path, monkeypatch):
    monkeypatch.setattr("videoinfer.eval.stub_batch.STUB", "videoinfer.eval.stub_workload:NoSuchThing")
    with pytest.raises(WorkersLost, match="NoSuchThing"):
        run_stubs(tmp_path, stub_jobs(requests("stub 0.01")), 1, FAST)
    assert not workers()


def test_a_stopped_worker_is_replaced(tmp_path):
    stopped = []

    def stop_one(runner):
        if not stopped and (alive := workers()) and any(seat.hands for seat in runner.seats):
            alive[0].send_signal(signal.SIGSTOP)
            stopped.append(alive[0].pid)

    jobs = stub_jobs(requests(*["stub 1"] * 4))
    queue, _, _ = run_stubs(tmp_path, jobs, 2, RunnerOptions(silence=5.0), interrupt=stop_one)
    assert stopped and queue.counts() == {State.DONE: 4}
    assert not workers()


def start(folder: Path, file: Path, *more: str) -> subprocess.Popen:
    command = [sys.executable, "-P", "-m", "videoinfer.eval.stub_batch", str(folder), "--jobs", str(file), *more]
    return subprocess.Popen(command)


def job_file(folder: Path, prompts: list[str]) -> Path:
    path = folder / "jobs.jsonl"
    path.write_text("".join(json.dumps({"prompt": p, "seed": k}) + "\n" for k, p in enumerate(prompts)))
    return path


def wait_for(condition, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def test_a_killed_runner_takes_its_workers_along_and_the_next_run_goes_on(tmp_path):
    file = job_file(tmp_path, ["stub 0.3"] * 8)
    process = start(tmp_path, file)
    children: list[psutil.Process] = []
    wait_for(lambda: len(clips(tmp_path)) >= 2)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    psutil.wait_procs(children, timeout=20)
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    before = set(clips(tmp_path))
    assert start(tmp_path, file).wait(120) == 0
    queue = JobQueue(open_journal(tmp_path / ".videoinfer" / "journal.sqlite"))
    assert queue.counts() == {State.DONE: 8}
    for job in queue.jobs():
        # Made again only where the kill came before its clip.
        assert count(tmp_path, "made", job.id) == 1 or job.name not in before
    assert not list(tmp_path.glob("*.part"))


def test_two_runners_on_one_folder_make_every_job_once(tmp_path):
    file = job_file(tmp_path, ["stub 0.2"] * 12)
    first, second = start(tmp_path, file), start(tmp_path, file)
    assert (first.wait(120), second.wait(120)) == (0, 0)
    queue = JobQueue(open_journal(tmp_path / ".videoinfer" / "journal.sqlite"))
    assert queue.counts() == {State.DONE: 12}
    assert [count(tmp_path, "made", job.id) for job in queue.jobs()] == [1] * 12
    assert len({attempt["runner"] for job in queue.jobs() for attempt in queue.attempts(job.id)}) == 2


def test_a_clip_that_was_published_just_before_a_crash_is_adopted(tmp_path):
    jobs = stub_jobs(requests("stub 0.01"))
    queue, _, _ = run_stubs(tmp_path, jobs, 1, FAST)
    # As a crash between the clip and the journal leaves it: the clip is there, its sidecar and the entry are not.
    with queue.journal.writing() as db:
        db.execute("UPDATE jobs SET state = 'queued', result = NULL, finished = NULL")
    (tmp_path / f"{jobs[0].name}.json").unlink()
    queue, _, _ = run_stubs(tmp_path, jobs, 1, FAST)
    assert queue.counts() == {State.DONE: 1}
    assert count(tmp_path, "made", jobs[0].id) == 1
    assert "recovered" in json.loads((tmp_path / f"{jobs[0].name}.json").read_text())


def test_a_foreign_file_of_the_same_name_is_not_touched(tmp_path):
    jobs = stub_jobs(requests("stub 0.01"))
    (tmp_path / f"{jobs[0].name}.mp4").write_bytes(b"somebody's")
    queue, _, _ = run_stubs(tmp_path, jobs, 1, FAST)
    assert queue.counts() == {State.FAILED: 1}
    assert "already exists" in (queue.job(jobs[0].id).reason or "")
    assert (tmp_path / f"{jobs[0].name}.mp4").read_bytes() == b"somebody's"


def test_two_jobs_of_one_name_are_refused(tmp_path):
    run_stubs(tmp_path, stub_jobs(requests("stub 0.01", id="night")), 1, FAST)
    with pytest.raises(RequestError, match="night"):
        run_stubs(tmp_path, stub_jobs(requests("stub 0.02", id="night")), 1, FAST)
