"""Workers come and go, without processes: the test itself stands at the other end of their connections."""

from multiprocessing import Pipe
from types import SimpleNamespace
from typing import Any

import pytest

from videoinfer.jobs.pool import MAX_FAILURES, Pool
from videoinfer.jobs.protocol import Message, Task
from videoinfer.jobs.seat import Hand, Seat


class Worker:
    """What a launcher gives; `theirs` is the end that a process would hold."""

    def __init__(self) -> None:
        self.connection, self.theirs = Pipe()
        self.exitcode: int | None = None

    def send(self, task: Task) -> None:
        self.connection.send(task)

    def cancel(self, job: str) -> None:
        self.send(Task("cancel", job))

    def kill(self) -> None:
        self.exitcode = self.exitcode if self.exitcode is not None else -9
        self.theirs.close()
        self.connection.close()

    def die(self, code: int) -> None:
        self.exitcode = code
        self.theirs.close()


class Room:
    """A pool of `size` workers, ready unless said otherwise, and what it told."""

    def __init__(self, size: int, ready: bool = True) -> None:
        self.workers: list[Worker] = []
        self.events: list[str] = []
        self.lost: list[tuple[str, str]] = []
        launcher: Any = SimpleNamespace(instances=size, start_after=lambda instance: 0.0, launch=self._launch)
        self.pool = Pool(launcher, 60.0, lambda event, *_: self.events.append(event), self._lost)
        if ready:
            self.start()

    def _launch(self, instance: int) -> Worker:
        self.workers.append(Worker())
        return self.workers[-1]

    def _lost(self, seat: Seat, hand: Hand, how: str, text: str) -> None:
        seat.drop(hand.job.id)
        self.lost.append((hand.job.id, how))

    def start(self) -> None:
        """Every empty seat gets a ready worker, however long it should have waited."""
        for seat in self.pool.seats:
            seat.start_at = 0.0
        before = len(self.workers)
        self.pool.start_due()
        for worker in self.workers[before:]:
            worker.theirs.send(Message("ready"))
        assert list(self.pool.hear()) == []


def give(here: Room, seat: Seat, job_id: str) -> None:
    job: Any = SimpleNamespace(id=job_id, part="", cost=1.0, name=job_id)
    here.pool.give(seat, job, Task("make", job_id))


def test_words_on_jobs_are_handed_on_and_words_on_the_worker_are_not():
    here = Room(2)
    here.workers[1].theirs.send(Message("beat", data={"memory": 7}))
    here.workers[1].theirs.send(Message("step", "a"))
    assert [(seat.index, message.kind) for seat, message in here.pool.hear()] == [(1, "step")]
    assert here.pool.seats[1].memory == 7 and here.pool.first_ready is not None
    assert all(seat.free for seat in here.pool.seats)


def test_the_jobs_of_a_worker_that_ends_are_lost_and_a_new_one_sits_down():
    here = Room(1)
    (seat,) = here.pool.seats
    give(here, seat, "a")
    assert here.workers[0].theirs.recv() == Task("make", "a") and not seat.free
    here.workers[0].theirs.send(Message("step", "a"))
    here.workers[0].die(3)
    assert [message.kind for _, message in here.pool.hear()] == ["step"]  # what it said before is heard
    assert here.lost == [("a", "killed")] and here.pool.last_loss == "its worker ended (3)"
    here.start()
    assert len(here.workers) == 2 and seat.free


def test_a_worker_that_is_gone_when_it_is_told_something_is_lost():
    here = Room(1)
    here.workers[0].die(-9)
    give(here, here.pool.seats[0], "a")
    assert here.lost == [("a", "killed")] and here.pool.last_loss == "its worker was killed by signal 9"


def test_a_silent_worker_and_a_late_job_are_lost():
    here = Room(2)
    for seat in here.pool.seats:
        give(here, seat, f"job {seat.index}")
    here.pool.watch(lambda hand: 1000.0)
    assert here.lost == []
    here.pool.seats[0].heard -= 61.0
    here.pool.seats[1].hands["job 1"].since -= 500.0
    here.pool.watch(lambda hand: 1000.0)
    assert here.lost == [("job 0", "silent")]
    # A limit is asked anew each time: it is learned from jobs that were finished meanwhile.
    here.pool.watch(lambda hand: 499.0)
    assert here.lost == [("job 0", "silent"), ("job 1", "time")]


def test_a_worker_that_loads_may_be_silent_for_longer():
    here = Room(1, ready=False)
    here.pool.start_due()
    here.pool.seats[0].heard -= 1000.0
    here.pool.watch(lambda hand: 1.0)
    assert here.events == []


def test_a_seat_whose_workers_cannot_start_stays_empty():
    here = Room(1, ready=False)
    for _ in range(MAX_FAILURES):
        here.pool.seats[0].start_at = 0.0
        here.pool.start_due()
        here.workers[-1].theirs.send(Message("broken", text="no model"))
        assert list(here.pool.hear()) == []
    assert here.pool.seats[0].retired and here.pool.last_loss == "no model"
    here.pool.start_due()
    assert len(here.workers) == MAX_FAILURES


@pytest.mark.parametrize("size", [1, 2])
def test_a_seat_that_lost_several_jobs_is_given_up_if_there_is_another(size):
    here = Room(size)
    seat = here.pool.seats[0]
    for number in range(MAX_FAILURES):
        give(here, seat, f"job {number}")
        here.pool.lose(seat, "killed")
        here.start()
    assert seat.retired == (size > 1)


def test_one_job_that_is_lost_again_and_again_is_no_fault_of_the_seat():
    here = Room(2)
    for _ in range(MAX_FAILURES + 1):
        give(here, here.pool.seats[0], "poison")
        here.pool.lose(here.pool.seats[0], "killed")
        here.start()
    assert not here.pool.seats[0].retired


def test_a_worn_worker_is_replaced_when_its_last_job_has_left_it_however_that_ended():
    here = Room(1)
    (seat,) = here.pool.seats
    give(here, seat, "a")
    seat.worn = "it grew"
    here.pool.watch(lambda hand: 1000.0)
    assert here.events == []
    seat.drop("a")
    here.pool.watch(lambda hand: 1000.0)
    assert here.events == ["worker replaced"] and seat.restarts == ["it grew"]
    here.start()
    assert seat.free


def test_closing_ends_all_and_gives_back_what_is_in_hand():
    here = Room(2)
    give(here, here.pool.seats[0], "a")
    here.workers[1].theirs.send(Message("beat"))  # so that closing does not wait for it to end
    here.pool.close("stopped: interrupted")
    assert here.lost == [("a", "stopped")]
    assert all(worker.exitcode == -9 for worker in here.workers)
    assert all(seat.process is None for seat in here.pool.seats)
