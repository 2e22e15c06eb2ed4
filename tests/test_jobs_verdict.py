"""What becomes of a job whose attempt went wrong, case by case."""

from types import SimpleNamespace
from typing import Any

import pytest

from videoinfer.jobs.states import State
from videoinfer.jobs.verdict import judge


def job(attempts: int = 1, offload: bool = False, state: State = State.DENOISING) -> Any:
    return SimpleNamespace(attempts=attempts, offload=offload, state=state)


@pytest.mark.parametrize(
    ("error", "first", "last"),
    [
        ("generation", State.QUEUED, State.FAILED),
        ("killed", State.QUEUED, State.SET_ASIDE),
        ("time", State.QUEUED, State.SET_ASIDE),
        ("silent", State.QUEUED, State.SET_ASIDE),
        ("disk", State.QUEUED, State.FAILED),
        ("conditioning", State.QUEUED, State.FAILED),  # one that can never be read must not come back for ever
        ("request", State.FAILED, State.FAILED),
        ("media", State.FAILED, State.FAILED),
        ("model", State.FAILED, State.FAILED),
        ("cancelled", State.CANCELLED, State.CANCELLED),
        ("stopped", State.QUEUED, State.QUEUED),
    ],
)
def test_nothing_is_tried_for_ever(error, first, last):
    assert judge(job(1), error, "why", State.QUEUED, 3).state is first
    verdict = judge(job(3), error, "why", State.QUEUED, 3)
    assert verdict.state is last
    assert verdict.counted == (error != "stopped")


def test_memory_is_tried_once_more_with_offload():
    verdict = judge(job(1), "memory", "why", State.ENCODED, 3)
    assert (verdict.state, verdict.offload) == (State.ENCODED, True)
    assert judge(job(2, offload=True), "memory", "why", State.ENCODED, 3).state is State.SET_ASIDE


def test_a_full_disk_holds_the_queue():
    assert judge(job(), "disk", "why", State.QUEUED, 3).hold
    assert not judge(job(), "generation", "why", State.QUEUED, 3).hold


def test_a_cancel_wins_over_every_error():
    assert judge(job(state=State.CANCELLING), "killed", "why", State.QUEUED, 3).state is State.CANCELLED
