"""The runner over real worker processes with a stub for the model: crashes, hangs, cancels, and two of them at once.

Nothing here goes by the clock. Where something has to happen while a job is in hand, the job is `stub 0 wait NAME`: it
waits until the test opens that gate. Limits in seconds are such that only a hang reaches them.
"""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from videoinfer.errors import RequestError
from videoinfer.eval.stub_batch import run_stubs, stub_jobs
from videoinfer.jobs import ACTIVE, Job, JobQueue, NewJob, State, open_journal
from videoinfer.jobs.runner import RunnerOptions, WorkersLost
from videoinfer.media import probe_mp4
from videoinfer.request import GenerationRequest

PATIENT = RunnerOptions(silence=600.0)


def requests(*prompts: str, **fields):
    return [GenerationRequest(prompt=prompt, seed=k, **fields) for k, prompt in enumerate(prompts)]


def faults(folder: Path) -> Path:
    return folder / ".videoinfer" / "faults"


def count(folder: Path, what: str, job: str) -> int:
    path = faults(folder) / f"{what} {job}"
    return path.stat().st_size if path.exists() else 0


def clips(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.mp4"))


def journal_of(folder: Path) -> JobQueue:
    return JobQueue(open_journal(folder / ".videoinfer" / "journal.sqlite", create=True))


def workers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if "placement.worker" in _line(child)]


def _line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@dataclass
class Ran:
    """A finished run: its folder, and its jobs by a word of the test."""

    folder: Path
    jobs: dict[str, NewJob]

    def job(self, word: str) -> Job:
        return journal_of(self.folder).job(self.jobs[word].id)

    def attempts(self, word: str) -> list[dict]:
        return journal_of(self.folder).attempts(self.jobs[word].id)

    def count(self, what: str, word: str) -> int:
        return count(self.folder, what, self.jobs[word].id)


def named(prompts: dict[str, str]) -> dict[str, NewJob]:
    return dict(zip(prompts, stub_jobs(requests(*prompts.values())), strict=True))


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Ran:
    """Four clips by two workers. Not to be changed."""
    ran = Ran(tmp_path_factory.mktemp("made"), named(dict.fromkeys(("gone", "changed", "kept", "published"), "stub 0")))
    run_stubs(ran.folder, list(ran.jobs.values()), 2, PATIENT)
    return ran


def test_every_job_is_made_once_and_its_clip_plays(made):
    assert journal_of(made.folder).counts() == {State.DONE: 4}
    assert clips(made.folder) == sorted(job.name for job in made.jobs.values())
    for word, job in made.jobs.items():
        assert probe_mp4(made.folder / f"{job.name}.mp4")["frames"] == 2
        assert made.count("made", word) == 1
    assert not list(made.folder.glob("*.part")) and not workers()


@pytest.fixture(scope="module")
def resumed(made, tmp_path_factory) -> Ran:
    """A second run over those four, after clips and journal were tampered with, and a fifth whose name is taken."""
    folder = shutil.copytree(made.folder, tmp_path_factory.mktemp("resumed") / "out")
    ran = Ran(folder, {**made.jobs, **named({"taken": "stub 0.001"})})
    clip = {word: folder / f"{job.name}.mp4" for word, job in ran.jobs.items()}
    clip["gone"].unlink()
    clip["changed"].write_bytes(b"not a clip")
    clip["taken"].write_bytes(b"somebody's")
    # As a crash between the clip and the journal leaves it: the clip is there, its sidecar and the entry are not.
    with journal_of(folder).journal.writing() as db:
        query = "UPDATE jobs SET state = 'queued', result = NULL, finished = NULL WHERE id = ?"
        db.execute(query, (ran.jobs["published"].id,))
    clip["published"].with_suffix(".json").unlink()
    run_stubs(folder, list(ran.jobs.values()), 1, PATIENT)
    return ran


@pytest.mark.parametrize(("word", "times"), [("kept", 1), ("published", 1), ("gone", 2), ("changed", 2)])
def test_a_second_run_makes_only_what_is_not_there_as_it_was_made(resumed, word, times):
    assert resumed.job(word).state is State.DONE
    assert resumed.count("made", word) == times
    assert probe_mp4(resumed.folder / f"{resumed.jobs[word].name}.mp4")["frames"] == 2


def test_a_changed_clip_is_kept_aside_and_a_lost_sidecar_written_from_the_clip(resumed):
    changed, published = resumed.jobs["changed"].name, resumed.jobs["published"].name
    assert (resumed.folder / f"{changed}.mp4.changed").read_bytes() == b"not a clip"
    assert "recovered" in json.loads((resumed.folder / f"{published}.json").read_text())


def test_a_foreign_file_of_the_same_name_is_not_touched(resumed):
    assert resumed.job("taken").state is State.FAILED
    assert "already exists" in (resumed.job("taken").reason or "")
    assert (resumed.folder / f"{resumed.jobs['taken'].name}.mp4").read_bytes() == b"somebody's"


@pytest.fixture(scope="module")
def faulty(tmp_path_factory) -> Ran:
    """Two workers over jobs that go wrong once or every time; without overlap, so that no job dies with another."""
    prompts = {f"{how} {times}": f"stub 0 {how} {times}" for how in ("die", "fail", "memory") for times in (1, 99)}
    ran = Ran(tmp_path_factory.mktemp("faulty"), named({**prompts, "full 1": "stub 0 full 1", "good": "stub 0"}))
    run_stubs(ran.folder, list(ran.jobs.values()), 2, PATIENT, overlap=False)
    return ran


@pytest.mark.parametrize("how", ["die", "fail", "full", "memory"])
def test_what_goes_wrong_once_is_tried_again_elsewhere(faulty, how):
    first, second = faulty.attempts(f"{how} 1")
    assert first["outcome"] != "done" and first["reason"]
    assert second["outcome"] == "done" and second["instance"] != first["instance"]
    assert faulty.job(f"{how} 1").offload == (how == "memory")


@pytest.mark.parametrize(
    ("how", "state", "tries"),
    [("die", State.SET_ASIDE, 3), ("fail", State.FAILED, 3), ("memory", State.SET_ASIDE, 2)],
)
def test_what_goes_wrong_every_time_is_given_up_and_the_others_are_made(faulty, how, state, tries):
    assert faulty.job(f"{how} 99").state is state
    assert faulty.job(f"{how} 99").reason
    assert faulty.count(how, f"{how} 99") == tries
    assert journal_of(faulty.folder).counts() == {State.SET_ASIDE: 2, State.FAILED: 1, State.DONE: 5}


def test_a_poison_job_does_not_take_the_only_instance_with_it_and_can_be_retried(tmp_path):
    jobs = stub_jobs(requests("stub 0 die 2", "stub 0"))
    queue, _, _ = run_stubs(tmp_path, jobs, 1, RunnerOptions(max_attempts=2, silence=600.0))
    assert queue.counts() == {State.SET_ASIDE: 1, State.DONE: 1}
    queue.retry([jobs[0].id])
    queue, _, _ = run_stubs(tmp_path, [], 1, PATIENT)
    assert queue.counts() == {State.DONE: 2}


def test_a_job_over_its_time_limit_is_set_aside(tmp_path):
    jobs = stub_jobs(requests("stub 0 hang 99"))
    queue, _, _ = run_stubs(tmp_path, jobs, 1, RunnerOptions(time_limit=1.0, max_attempts=2))
    assert queue.counts() == {State.SET_ASIDE: 1}
    assert "within its 1 s" in (queue.job(jobs[0].id).reason or "")


def test_two_phases_encode_each_conditioning_once_and_first(tmp_path):
    jobs = stub_jobs(requests("stub 0", "stub 0"))
    twice = stub_jobs(requests("stub 0", id="again"))
    twice = [type(job)(**{**vars(job), "conditioning": jobs[0].conditioning}) for job in twice]
    queue, _, _ = run_stubs(tmp_path, [*jobs, *twice], 2, RunnerOptions(two_phase=True, silence=600.0))
    assert queue.counts() == {State.DONE: 3}
    assert [count(tmp_path, "encoded", job.conditioning) for job in jobs] == [1, 1]
    events = [json.loads(line) for line in (tmp_path / ".videoinfer" / "events.jsonl").read_text().splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds.index("phase") < kinds.index("done") and "encoded" not in kinds[kinds.index("phase") :]


def test_a_running_job_can_be_cancelled(tmp_path):
    jobs = stub_jobs(requests("stub 0 wait never", "stub 0"))

    def cancel(runner):
        if any(hand.step for hand in runner.pool.hands):
            runner.queue.cancel([jobs[0].id])

    queue, _, _ = run_stubs(tmp_path, jobs, 1, PATIENT, interrupt=cancel)
    assert queue.counts() == {State.CANCELLED: 1, State.DONE: 1}
    assert clips(tmp_path) == [jobs[1].name]


def test_stopping_finishes_what_is_in_hand(tmp_path):
    jobs = stub_jobs(requests("stub 0 wait go", "stub 0 wait go"))

    def stop(runner):
        if runner.pool.hands:
            runner.stop()
            (faults(tmp_path) / "go").touch()

    queue, _, _ = run_stubs(tmp_path, jobs, 1, PATIENT, interrupt=stop)
    assert queue.counts() == {State.DONE: 1, State.QUEUED: 1}


def test_pause_starts_nothing_and_drain_ends_the_runner(tmp_path):
    jobs = stub_jobs(requests("stub 0", "stub 0"))
    journal_of(tmp_path).set("wish", "pause")
    ready: list[bool] = []

    def drain_at_the_second_beat_with_a_worker(runner):
        if runner.first_ready is not None:
            ready.append(runner.paused)
        if len(ready) == 2:
            runner.queue.set("wish", "drain")

    queue, runner, _ = run_stubs(tmp_path, jobs, 1, PATIENT, interrupt=drain_at_the_second_beat_with_a_worker)
    # The first beat comes before the first worker is ready, so no job was started before the pause was seen.
    assert queue.counts() == {State.QUEUED: 2} and ready[:2] == [True, True]
    assert runner.stopping == "drained"


def test_workers_that_cannot_start_end_the_run_with_their_reason(tmp_path, monkeypatch):
    monkeypatch.setattr("videoinfer.eval.stub_batch.STUB", "videoinfer.eval.no_such_module:Workload")
    monkeypatch.setattr("videoinfer.jobs.pool.RESTART", (0.0, 0.0))
    with pytest.raises(WorkersLost, match="no_such_module"):
        run_stubs(tmp_path, stub_jobs(requests("stub 0")), 1, PATIENT)
    assert not workers()


def test_a_stopped_worker_is_replaced(tmp_path):
    jobs = stub_jobs(requests("stub 0 wait go"))
    stopped: list[int] = []

    def stop(runner):
        if not stopped and any(hand.step for hand in runner.pool.hands):
            stopped.append(runner.seats[0].process.pid)
            psutil.Process(stopped[0]).send_signal(signal.SIGSTOP)
            (faults(tmp_path) / "go").touch()

    # Attempts enough for a machine so slow that workers at work seem silent.
    options = RunnerOptions(silence=4.0, max_attempts=20)
    queue, _, _ = run_stubs(tmp_path, jobs, 1, options, interrupt=stop)
    assert queue.counts() == {State.DONE: 1}
    assert "silent" in [attempt["outcome"] for attempt in queue.attempts(jobs[0].id)]
    assert not psutil.pid_exists(stopped[0]) and not workers()


def start(folder: Path, prompts: list[str], instances: int) -> subprocess.Popen:
    """A runner in a process of its own, over the same jobs as `stub_jobs(requests(*prompts))`."""
    path = folder / "jobs.jsonl"
    path.write_text("".join(json.dumps({"prompt": p, "seed": k}) + "\n" for k, p in enumerate(prompts)))
    command = [sys.executable, "-P", "-m", "videoinfer.eval.stub_batch", str(folder), "--jobs", str(path)]
    return subprocess.Popen([*command, "--instances", str(instances), "--silence", "600"])


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 600.0
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True


def test_a_killed_runner_takes_its_workers_along_and_the_next_run_goes_on(tmp_path):
    # The expensive ones go first; both workers then wait with one of the others each.
    prompts = ["stub 0.02", "stub 0.01", "stub 0 wait go", "stub 0 wait go"]
    jobs, queue = stub_jobs(requests(*prompts)), journal_of(tmp_path)
    process = start(tmp_path, prompts, instances=2)
    made = lambda: [count(tmp_path, "made", job.id) for job in jobs]  # noqa: E731
    wait_for(lambda: (queue.counts().get(State.DONE) == 2 and made() == [1] * 4) or process.poll() is not None)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    assert len(children) == 2
    wait_for(lambda: all(map(ended, children)))
    (faults(tmp_path) / "go").touch()
    run_stubs(tmp_path, [], 1, PATIENT)
    assert queue.counts() == {State.DONE: 4} and made() == [1, 1, 2, 2]
    assert {job.attempts for job in queue.jobs()} == {1}  # that their runner was killed says nothing of them
    assert not list(tmp_path.glob("*.part"))


def test_two_runners_on_one_folder_make_every_job_once(tmp_path):
    prompts = ["stub 0 wait both"] * 5
    other = start(tmp_path, prompts, instances=1)

    def open_when_both_have_one(runner):
        holders = {job.runner for job in runner.queue.jobs(*ACTIVE)}
        assert len(holders) == 2 or other.poll() is None or gate.exists()
        if len(holders) == 2:
            gate.touch()

    gate = faults(tmp_path) / "both"
    queue, _, _ = run_stubs(tmp_path, stub_jobs(requests(*prompts)), 1, PATIENT, interrupt=open_when_both_have_one)
    assert other.wait(600) == 0
    assert queue.counts() == {State.DONE: 5}
    assert [count(tmp_path, "made", job.id) for job in queue.jobs()] == [1] * 5
    assert len({attempt["runner"] for job in queue.jobs() for attempt in queue.attempts(job.id)}) == 2


def test_two_jobs_of_one_name_are_refused_before_anything_runs(tmp_path):
    journal_of(tmp_path).add(stub_jobs(requests("stub 0", id="night")))
    with pytest.raises(RequestError, match="night"):
        run_stubs(tmp_path, stub_jobs(requests("stub 1", id="night")), 1, PATIENT)
    assert journal_of(tmp_path).counts() == {State.QUEUED: 1}
