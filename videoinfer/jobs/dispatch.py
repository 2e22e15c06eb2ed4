"""Jobs go out: which one a free worker gets, and when a two-phase run turns from encoding to making and back."""

from collections.abc import Callable
from pathlib import Path

from .protocol import Task
from .rows import Job
from .runner_queue import RunnerQueue
from .seat import Seat
from .states import State

PATIENCE = 600.0  # seconds that a job waits for another worker than the one on which it went wrong


class Dispatch:
    """`phase` is "make", or "encode" in the first phase of a two-phase run.

    outputs        where clip `name` goes
    conditionings  where the conditioning of a key lies
    offload        give up each stage's weights as soon as it is over, for every job
    """

    def __init__(
        self,
        queue: RunnerQueue,
        outputs: Callable[[str], Path],
        conditionings: Callable[[str], Path],
        two_phase: bool,
        offload: bool,
    ) -> None:
        self.queue, self.outputs, self.conditionings = queue, outputs, conditionings
        self.two_phase, self.offload = two_phase, offload
        self.phase = "encode" if two_phase else "make"

    def claim(self, seat: Seat, others: bool) -> Job | None:
        """The next job for this worker; `others`: whether there are more workers, of whom one may do what this one
        could not."""
        place = (seat.index, seat.part, PATIENCE if others else 0.0)
        if self.phase == "encode":
            return self.queue.claim_encoding(*place)
        job = self.queue.claim(State.ENCODED, State.DENOISING, *place)
        if job is None and not self.two_phase:
            job = self.queue.claim(State.QUEUED, State.ENCODING, *place)
        return job

    def task(self, job: Job) -> Task:
        """What the worker is told of a job that was claimed for it."""
        path = str(self.conditionings(job.conditioning))
        if self.phase == "encode":
            return Task("encode", job.id, job.request, conditioning=path)
        given = path if job.state is State.DENOISING else None
        offload = job.offload or self.offload
        return Task("make", job.id, job.request, str(self.outputs(job.name)), conditioning=given, offload=offload)

    def turn(self, encoding: bool) -> bool:
        """Whether the next phase begins here; `encoding`: whether a worker of this runner still encodes.

        What other runners encode is not waited for: it is made when it is there, and comes back if it goes wrong. It
        is no reason to go back to encoding either.
        """
        if not self.two_phase:
            return False
        if self.phase == "encode":
            over = not encoding and not self.queue.to_encode()
        else:
            over = not self.queue.counts().get(State.ENCODED) and self.queue.to_encode() > 0
        if over:
            self.phase = "make" if self.phase == "encode" else "encode"
        return over
