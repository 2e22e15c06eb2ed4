"""One worker's place in a runner: its process, the jobs in its hands, and whether it has grown slow or large."""

import statistics
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from .protocol import WorkerProcess
from .rows import Job

SLOWDOWN = 1.5  # of the median step time, against the first jobs of the same shape
GROWTH = (1.5, 1 << 30)  # of resident memory after the second job: factor, and bytes on top
FIRST_JOBS = 3
MIN_STEPS = 8  # a median of fewer steps says nothing


@dataclass
class Hand:
    """A job in a worker's hands, to be encoded or made (`kind`). Times are time.monotonic()."""

    job: Job
    kind: str
    stage: str
    since: float
    step: int = 0
    steps: int = 0
    step_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=50))

    @property
    def work(self) -> float:
        """What it costs in units of its kind. Encoding costs the same for every clip."""
        return self.job.cost if self.kind == "make" else 1.0


class Seat:
    def __init__(self, index: int, start_at: float) -> None:
        self.index = index
        self.start_at = start_at  # time.monotonic() at which a process is to be started
        self.process: WorkerProcess | None = None
        self.ready = False
        self.retired = False
        self.worn: str | None = None  # why it is to be replaced as soon as its hands are empty
        self.hands: dict[str, Hand] = {}
        self.busy = False  # with encoding or denoising: what overlaps nothing else
        self.part = ""
        self.heard = 0.0
        self.started = 0.0
        self.memory = 0
        self.finished = 0
        self.failures = 0  # of the process, in a row, with no job in its hands
        self.lost_jobs: set[str] = set()  # that this seat's processes died over, since the last one that was done
        self.restarts: list[str] = []
        self._first: dict[str, list[float]] = {}
        self._memory_then = 0

    @property
    def free(self) -> bool:
        return self.ready and not self.busy and not self.retired and self.worn is None and self.process is not None

    def take(self, job: Job, kind: str, stage: str) -> None:
        self.hands[job.id] = Hand(job, kind, stage, time.monotonic())
        self.busy, self.part = True, job.part

    def drop(self, job_id: str) -> Hand | None:
        """The job has left this worker."""
        hand = self.hands.pop(job_id, None)
        self.busy = self.busy and any(h.stage in ("encode", "denoise") for h in self.hands.values())
        return hand

    def lost(self, jobs: list[str]) -> None:
        """The process is gone, with these jobs in its hands."""
        self.lost_jobs.update(jobs)
        self.failures += not jobs

    def tired(self, hand: Hand, memory: int) -> str | None:
        """Why the process should be replaced, judged when a job is finished; None when it is as it was."""
        self.finished += 1
        if self.finished == 2:
            self._memory_then = memory
        if self._memory_then and memory > GROWTH[0] * self._memory_then + GROWTH[1]:
            return f"memory grew from {self._memory_then / 1e6:.0f} to {memory / 1e6:.0f} MB"
        if len(hand.step_seconds) < MIN_STEPS:
            return None
        median = statistics.median(hand.step_seconds)
        first = self._first.setdefault(hand.job.part, [])
        if len(first) < FIRST_JOBS:
            first.append(median)
            return None
        usual = statistics.median(first)
        if median > SLOWDOWN * usual:
            return f"a step took {median:.3g} s, {median / usual:.1f} times the {usual:.3g} s of the start"
        return None

    def describe(self) -> dict[str, Any]:
        """For screens: its state, and a line for each job in hand."""
        state = "given up" if self.retired else "starting" if not self.ready else "working" if self.hands else "idle"
        jobs = [
            {
                "job": hand.job.name,
                "stage": hand.stage,
                "step": hand.step,
                "steps": hand.steps,
                "step_seconds": hand.step_seconds[-1] if hand.step_seconds else None,
                "seconds": round(time.monotonic() - hand.since, 1),
            }
            for hand in self.hands.values()
        ]
        return {"instance": self.index, "state": state, "memory": self.memory, "jobs": jobs}

    def reset(self, start_at: float) -> None:
        """A new process will sit here; what the old one had measured is kept to itself."""
        self.process, self.ready, self.busy, self.worn, self.part = None, False, False, None, ""
        self.start_at, self.finished, self._memory_then = start_at, 0, 0
        self._first.clear()
        self.hands.clear()
