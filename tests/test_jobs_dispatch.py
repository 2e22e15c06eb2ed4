"""Which job goes out to a free worker, and when the phases of a two-phase run change."""

from pathlib import Path

import pytest

from videoinfer.eval.stub_batch import stub_jobs
from videoinfer.jobs import RunnerQueue, State, open_journal
from videoinfer.jobs.dispatch import Dispatch
from videoinfer.jobs.seat import Seat
from videoinfer.request import GenerationRequest

SEAT = Seat(0, 0.0)


@pytest.fixture
def queue(tmp_path) -> RunnerQueue:
    journal = open_journal(tmp_path / "journal.sqlite", create=True)
    queue = RunnerQueue(journal, "me")
    queue.add(stub_jobs(GenerationRequest(prompt="stub 1", seed=k) for k in range(3)))
    return queue


def dispatch(queue: RunnerQueue, two_phase: bool = False, offload: bool = False) -> Dispatch:
    return Dispatch(queue, lambda name: Path(f"{name}.mp4"), lambda key: Path(f"{key}.st"), two_phase, offload)


def encode(queue: RunnerQueue) -> str:
    job = queue.claim_encoding(0)
    assert job is not None
    queue.release(job.id, State.ENCODED, "encoded", attempts=0)
    return job.id


def test_one_phase_makes_encoded_jobs_from_their_conditioning_and_others_from_the_prompt(queue):
    first = encode(queue)
    out = dispatch(queue, offload=True)
    jobs = [out.claim(SEAT, others=False) for _ in range(4)]
    assert jobs[0] is not None and jobs[0].id == first and jobs[1] is not None and jobs[3] is None
    task = out.task(jobs[0])
    assert (task.kind, task.conditioning, task.output) == ("make", f"{jobs[0].conditioning}.st", f"{first}.mp4")
    assert task.offload and out.task(jobs[1]).conditioning is None
    assert not out.turn(encoding=False)


def test_phases_follow_each_other_and_come_back_for_a_job_that_was_added(queue):
    out = dispatch(queue, two_phase=True)
    for _ in range(3):
        assert not out.turn(encoding=False)
        assert out.task(out.queue.jobs()[0]).kind == "encode"
        encode(queue)
    assert not out.turn(encoding=True)
    assert out.turn(encoding=False) and out.phase == "make"
    queue.add(stub_jobs([GenerationRequest(prompt="stub 2")]))
    for _ in range(3):
        assert not out.turn(encoding=False)
        assert out.claim(SEAT, others=False) is not None
    assert out.turn(encoding=False) and out.phase == "encode"


def test_a_runner_goes_on_while_another_one_encodes_and_does_not_turn_back_and_forth(queue):
    other = RunnerQueue(queue.journal, "other")
    encode(queue)
    held = [other.claim_encoding(0), other.claim_encoding(1)]
    # One more job waits for what the other runner encodes.
    (more,) = stub_jobs([GenerationRequest(prompt="stub 2")])
    assert held[0] is not None
    queue.add([type(more)(**{**vars(more), "conditioning": held[0].conditioning})])
    out = dispatch(queue, two_phase=True)
    assert out.turn(encoding=False) and out.phase == "make"
    assert out.claim(SEAT, others=False) is not None and out.claim(SEAT, others=False) is None
    assert not out.turn(encoding=False)
    # The other one fails: now there is something to encode here.
    other.release(held[0].id, State.QUEUED, "generation", "it went wrong")
    assert out.turn(encoding=False) and out.phase == "encode"
    assert out.claim(SEAT, others=False) is not None


def test_what_went_wrong_here_waits_only_for_workers_that_there_are(queue):
    out = dispatch(queue)
    for _ in range(3):
        job = out.claim(SEAT, others=True)
        assert job is not None
        queue.release(job.id, State.QUEUED, "generation", "it went wrong")
    assert out.claim(SEAT, others=True) is None
    assert out.claim(Seat(1, 0.0), others=True) is not None
    assert out.claim(SEAT, others=False) is not None
