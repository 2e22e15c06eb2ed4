"""The runner: hands the jobs of a queue to workers, and gets every one of them done, or says why not."""

import json
import time
from collections.abc import Callable
from pathlib import Path

from ..errors import VideoInferError
from .dispatch import Dispatch
from .options import RunnerOptions
from .pace import Pace
from .pool import Pool
from .protocol import Launcher, Task
from .returns import Returns
from .rows import Job
from .runner_queue import RunnerQueue
from .runners import reclaim
from .seat import Hand, Seat
from .states import FINAL

BEAT = 1.0  # seconds between looks at the journal


class WorkersLost(VideoInferError):
    """No worker can be kept running; the reason is that of the last one."""


class Runner:
    """`run()` returns when nothing is left to do, when it is drained, or after `stop()`.

    outputs        where clip `name` goes
    conditionings  where the conditioning of a key lies
    on_event       told (event, job or None, text) of everything worth a line
    has_room       whether the disk has room for another clip
    on_beat        called once a second
    """

    def __init__(
        self,
        queue: RunnerQueue,
        launcher: Launcher,
        outputs: Callable[[str], Path],
        conditionings: Callable[[str], Path],
        options: RunnerOptions,
        on_event: Callable[[str, Job | None, str], None] = lambda *_: None,
        has_room: Callable[[], bool] = lambda: True,
        on_beat: Callable[["Runner"], None] = lambda _: None,
    ) -> None:
        self.queue, self.options = queue, options
        self.on_event, self.has_room, self.on_beat = on_event, has_room, on_beat
        self.began = time.monotonic()
        self.pace = Pace(options.time_limit)
        self.dispatch = Dispatch(queue, outputs, conditionings, options.two_phase, options.offload)
        self.returns = Returns(queue, outputs, conditionings, self.pace, options.max_attempts, on_event)
        self.pool = Pool(launcher, options.silence, on_event, self.returns.failed)
        self.stopping: str | None = None  # why nothing new is started
        self.paused = False
        self._beat_at = 0.0

    @property
    def seats(self) -> list[Seat]:
        return self.pool.seats

    @property
    def first_ready(self) -> float | None:
        """time.monotonic() at which the first worker could begin."""
        return self.pool.first_ready

    @property
    def holding(self) -> bool:
        """Whether nothing is started until the disk has room."""
        return self.returns.holding

    @property
    def done_cost(self) -> float:
        """What the clips of this run cost, in units of the cost model; `done_seconds` is what they took."""
        return self.pace.cost["make"]

    @property
    def done_seconds(self) -> float:
        return self.pace.seconds["make"]

    def stop(self, why: str = "interrupted") -> None:
        """Start nothing new; `run` returns when the jobs in hand are finished."""
        self.stopping = self.stopping or why

    def run(self) -> None:
        """Raises WorkersLost when no worker can be kept. All workers are gone when it returns or raises."""
        try:
            while not self._finished():
                if not self.stopping:
                    self.pool.start_due()
                    if not (self.paused or self.holding):
                        self._assign()
                for seat, message in self.pool.hear():
                    self.returns.hear(seat, message)
                self.pool.watch(self._limit)
                if time.monotonic() - self._beat_at >= BEAT:
                    self._beat()
        finally:
            self.pool.close(f"stopped: {self.stopping or 'the runner ended'}")

    def _assign(self) -> None:
        for seat in self.seats:
            if seat.free and self.dispatch.turn(any(hand.kind == "encode" for hand in self.pool.hands)):
                self._begin_phase()
            # Asked again: a worker may have been lost over the news of the phase.
            if seat.free and (job := self.dispatch.claim(seat, self.pool.others(seat))) is not None:
                self.pool.give(seat, job, self.dispatch.task(job))

    def _begin_phase(self) -> None:
        making = self.dispatch.phase == "make"
        self.on_event("phase", None, "denoising" if making else "encoding")
        for seat in self.seats:
            if making and seat.ready:
                self.pool.tell(seat, Task("free"))

    def _limit(self, hand: Hand) -> float:
        return self.pace.limit(hand.kind, hand.work)

    def _beat(self) -> None:
        self._beat_at = time.monotonic()
        steps = [(h.job.id, h.step, h.steps, h.step_seconds[-1]) for h in self.pool.hands if h.step_seconds]
        for job_id in self.queue.progress(steps, json.dumps([seat.describe() for seat in self.seats])):
            self.pool.cancel(job_id)
        wish = self.queue.setting("wish")
        self.paused = wish == "pause"
        if wish == "drain":
            self.stop("drained")
        if self.holding and self.has_room():
            self.returns.holding = False
        for job_id in reclaim(self.queue.journal):
            self.on_event("taken over", self.queue.job(job_id), "its runner had ended")
        self.on_beat(self)

    def _finished(self) -> bool:
        if self.pool.hands:
            return False
        if self.stopping:
            return True
        if all(seat.retired for seat in self.seats):
            raise WorkersLost(f"no worker can be kept running: {self.pool.last_loss}")
        if self.options.watch:
            return False
        counts = self.queue.counts()
        # What another runner has in hand may come back: stay until it is settled.
        return not sum(count for state, count in counts.items() if state not in FINAL)
