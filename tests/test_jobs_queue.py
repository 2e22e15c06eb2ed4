"""The journal: what survives, who may change what, and in which order jobs are taken."""

import sqlite3
import threading
from pathlib import Path

import pytest

from videoinfer.errors import RequestError
from videoinfer.eval.stub_batch import stub_jobs
from videoinfer.jobs import JobQueue, JournalError, RunnerQueue, State, open_journal
from videoinfer.jobs.journal import MIGRATIONS, file_system
from videoinfer.jobs.runners import alive, reclaim, registered
from videoinfer.request import GenerationRequest


@pytest.fixture
def journal(tmp_path):
    return open_journal(tmp_path / "q" / "journal.sqlite", create=True)


def filled(journal, *seconds: float) -> RunnerQueue:
    queue = RunnerQueue(journal, "me")
    queue.add(stub_jobs(GenerationRequest(prompt=f"stub {s}", seed=k) for k, s in enumerate(seconds)))
    return queue


def take(queue: RunnerQueue, instance: int = 0, patience: float = 0.0):
    return queue.claim(State.QUEUED, State.ENCODING, instance, "", patience)


def later(queue: JobQueue, seconds: float) -> None:
    """As if that much time had gone by since every attempt."""
    with queue.journal.writing() as db:
        db.execute("UPDATE attempts SET started = started - ?, ended = ended - ?", (seconds, seconds))


def test_the_most_expensive_job_goes_first_and_priority_before_that(journal):
    queue = filled(journal, 1, 3, 2)
    queue.prioritise([queue.jobs()[0].id], 1)
    assert [job.cost for job in (take(queue), take(queue), take(queue)) if job] == [1, 3, 2]
    assert take(queue) is None


def test_a_job_is_taken_by_one_of_many_threads(journal):
    filled(journal, *range(1, 41))
    taken: list[str] = []

    def work(name: str) -> None:
        queue = RunnerQueue(journal, name)
        while (job := take(queue)) is not None:
            taken.append(job.id)

    threads = [threading.Thread(target=work, args=(f"runner {k}",)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == len(set(taken)) == 40


def test_what_is_not_held_cannot_be_changed(journal):
    queue, other = filled(journal, 1), RunnerQueue(journal, "other")
    job = take(queue)
    assert job is not None
    assert not other.move(job.id, State.DENOISING)
    assert not other.release(job.id, State.DONE, "done")
    assert queue.move(job.id, State.DENOISING) and queue.release(job.id, State.DONE, "done")
    assert not queue.release(job.id, State.FAILED, "late")
    assert queue.job(job.id).state is State.DONE


def test_a_job_that_failed_on_an_instance_is_left_to_the_others_for_a_while(journal):
    queue = filled(journal, 1)
    job = take(queue, 3)
    assert job is not None
    queue.release(job.id, State.QUEUED, "generation", "it went wrong")
    assert take(queue, 3, patience=3600.0) is None
    again = take(queue, 4, patience=3600.0)
    assert again is not None and again.attempts == 2
    queue.release(job.id, State.QUEUED, "generation", "it went wrong")
    assert take(queue, 4, patience=3600.0) is None
    later(queue, 3601.0)  # nobody else came
    last = take(queue, 4, patience=3600.0)
    assert last is not None and last.attempts == 3


def test_a_job_that_failed_on_an_instance_is_the_last_that_it_takes_again(journal):
    queue = filled(journal, 9, 1)
    job = take(queue, 3)
    assert job is not None and job.cost == 9
    queue.release(job.id, State.QUEUED, "generation", "it went wrong")
    assert [job.cost for job in (take(queue, 3), take(queue, 3)) if job] == [1, 9]


def test_the_jobs_of_a_dead_runner_come_back_and_those_of_a_living_one_do_not(journal):
    filled(journal, 1, 2, 3)
    with registered(journal) as living:
        held = take(living)
        dead = RunnerQueue(journal, "dead")
        lost, unwanted = take(dead), take(dead)
        assert held is not None and lost is not None and unwanted is not None
        living.cancel([unwanted.id])
        assert alive(journal, str(living.runner)) and not alive(journal, "dead")
        assert set(reclaim(journal)) == {lost.id, unwanted.id} and reclaim(journal) == []
        assert living.job(unwanted.id).state is State.CANCELLED
        assert (living.job(held.id).state, living.job(lost.id).state) == (State.ENCODING, State.QUEUED)
        assert living.job(lost.id).attempts == 0
    assert not alive(journal, str(living.runner))


def test_one_conditioning_is_made_by_one_worker(journal):
    queue = RunnerQueue(journal, "me")
    jobs = stub_jobs(GenerationRequest(prompt="stub 1", seed=k) for k in range(3))
    queue.add(type(job)(**{**vars(job), "conditioning": "same"}) for job in jobs)
    assert queue.to_encode() == 3
    first = queue.claim_encoding(0)
    assert first is not None and queue.claim_encoding(1) is None
    assert queue.to_encode() == 0
    queue.release(first.id, State.ENCODED, "encoded")
    queue.encoded(["same"])
    assert queue.counts() == {State.ENCODED: 3}


def test_a_cancel_during_the_encoding_is_not_forgotten_when_it_ends(journal):
    queue = filled(journal, 1)
    job = queue.claim_encoding(0)
    assert job is not None
    assert queue.cancel([job.id]) == {job.id: State.CANCELLING}
    assert queue.release(job.id, State.ENCODED, "encoded")
    assert queue.job(job.id).state is State.CANCELLED


def test_a_failed_transaction_leaves_nothing(journal):
    queue = filled(journal, 1)
    bad = stub_jobs([GenerationRequest(prompt="stub 5", id="a"), GenerationRequest(prompt="stub 6", id="a")])
    with pytest.raises(RequestError, match="'a'"):
        queue.add(bad)
    assert len(queue.jobs()) == 1


def test_a_second_opening_sees_the_same_and_a_newer_form_is_refused(journal):
    filled(journal, 1)
    assert len(JobQueue(open_journal(journal.path)).jobs()) == 1
    with sqlite3.connect(journal.path) as db:
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with pytest.raises(JournalError, match="newer"):
        open_journal(journal.path)


def test_journals_that_are_none_are_refused(tmp_path):
    with pytest.raises(JournalError, match="no journal"):
        open_journal(tmp_path / "journal.sqlite")
    (tmp_path / "bad.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(JournalError, match="damaged"):
        open_journal(tmp_path / "bad.sqlite")


def test_a_network_file_system_is_found_by_its_mount(tmp_path):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "1 0 8:1 / / rw - ext4 /dev/sda rw\n"
        "2 1 0:9 / /mnt/night\\040box rw - nfs4 server:/x rw\n"
        "3 1 0:9 / /mnt/nightly rw - xfs /dev/sdb rw\n"
    )
    assert file_system(Path("/mnt/night box/a/b"), mounts) == "nfs4"
    assert file_system(Path("/mnt/nightly/b"), mounts) == "xfs"
    assert file_system(Path("/mnt"), mounts) == "ext4"
    assert file_system(Path("/mnt"), tmp_path / "none") == ""
