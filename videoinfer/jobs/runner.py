"""The runner: hands the jobs of a queue to workers, and gets every one of them done, or says why not."""

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from ..errors import VideoInferError
from .on_disk import ClipPlace, adopt, file_facts
from .protocol import Launcher, Message, Task
from .queue import Job, JobQueue
from .runners import reclaim
from .seat import Hand, Seat
from .states import FINAL, State
from .verdict import judge

logger = logging.getLogger(__name__)

BEAT = 1.0  # seconds between looks at the journal
SILENCE = 60.0  # seconds without a word after which a worker counts as stopped; each beats every two
LOADING = 1800.0  # seconds that a worker may take to start
MAX_FAILURES = 3  # starts that fail, or jobs that are lost, in a row, before a seat stays empty
STAGES = {"encode": State.ENCODING, "denoise": State.DENOISING, "decode": State.DECODING, "write": State.DECODING}


class WorkersLost(VideoInferError):
    """No worker can be kept running; the reason is that of the last one."""


@dataclass(frozen=True)
class RunnerOptions:
    """`time_limit` in seconds per job; None: ten times what the finished jobs let expect, at least ten minutes.

    `silence`: seconds without a sign of life after which a worker is replaced.
    """

    two_phase: bool = False
    offload: bool = False  # give up each stage's weights as soon as it is over, for every job
    max_attempts: int = 3
    time_limit: float | None = None
    silence: float = SILENCE
    watch: bool = False  # wait for more jobs when the queue is empty


class Runner:
    """`run()` returns when nothing is left to do, when it is drained, or after `stop()`.

    outputs        where clip `name` goes
    conditionings  where the conditioning of a key lies
    on_event       told (event, job or None, text) of everything worth a line
    has_room       whether the disk has room for another clip
    """

    def __init__(
        self,
        queue: JobQueue,
        launcher: Launcher,
        outputs: Callable[[str], Path],
        conditionings: Callable[[str], Path],
        options: RunnerOptions,
        on_event: Callable[[str, Job | None, str], None] = lambda *_: None,
        has_room: Callable[[], bool] = lambda: True,
        on_beat: Callable[["Runner"], None] = lambda _: None,
    ) -> None:
        self.queue, self.launcher, self.options = queue, launcher, options
        self.outputs, self.conditionings = outputs, conditionings
        self.on_event, self.has_room, self.on_beat = on_event, has_room, on_beat
        self.began = time.monotonic()
        self.first_ready: float | None = None  # time.monotonic() at which the first worker could begin
        self.seats = [Seat(k, self.began + launcher.start_after(k)) for k in range(launcher.instances)]
        self.phase = "encode" if options.two_phase else "make"
        self.stopping: str | None = None  # why nothing new is started
        self.paused = self.holding = False
        self.done_cost = self.done_seconds = 0.0
        self._beat_at = 0.0
        self._last_loss = ""

    def stop(self, why: str = "interrupted") -> None:
        """Start nothing new; `run` returns when the jobs in hand are finished."""
        self.stopping = self.stopping or why

    def run(self) -> None:
        """Raises WorkersLost when no worker can be kept. All workers are gone when it returns or raises."""
        try:
            while not self._finished():
                self._start_due()
                if not (self.stopping or self.paused or self.holding):
                    self._assign()
                self._listen()
                self._watch()
                if time.monotonic() - self._beat_at >= BEAT:
                    self._beat()
        finally:
            self._close()

    # Workers come and go.

    def _start_due(self) -> None:
        for seat in self.seats:
            if seat.process is None and not seat.retired and not self.stopping and time.monotonic() >= seat.start_at:
                seat.process = self.launcher.launch(seat.index)
                seat.started = seat.heard = time.monotonic()

    def _listen(self) -> None:
        seats = {seat.process.connection: seat for seat in self.seats if seat.process is not None}
        if not seats:
            time.sleep(0.05)
            return
        for connection in wait(list(seats), timeout=0.2):
            seat = seats[connection]  # type: ignore[index]
            try:
                while seat.process is not None and seat.process.connection.poll():
                    seat.heard = time.monotonic()
                    self._hear(seat, seat.process.connection.recv())
            except (EOFError, OSError):
                self._lose(seat, "killed")

    def _lose(self, seat: Seat, how: str, text: str | None = None) -> None:
        """The worker is gone, or is made to be: its jobs go on elsewhere, and a new process sits down in its place."""
        process = seat.process
        if process is None:
            return
        process.kill()
        code = process.exitcode
        text = text or (
            f"its worker was killed by signal {-code}" if code and code < 0 else f"its worker ended ({code})"
        )
        self._last_loss = text
        seat.lost(list(seat.hands))
        for hand in list(seat.hands.values()):
            self._fail(seat, hand, how, text)
        self.on_event("worker lost", None, f"instance {seat.index}: {text}")
        seat.reset(time.monotonic() + min(30.0, 0.5 * 2.0**seat.failures))
        # A job may kill every worker it meets, and is set aside for it; a seat where three jobs in a row were lost is
        # itself the trouble, if others are better off.
        others = any(other is not seat and not other.retired for other in self.seats)
        if seat.failures >= MAX_FAILURES or (others and len(seat.lost_jobs) >= MAX_FAILURES):
            seat.retired = True
            self.on_event("instance given up", None, f"instance {seat.index}: {text}, {MAX_FAILURES} times in a row")

    def _replace(self, seat: Seat, why: str) -> None:
        """A worker that has nothing in hand is ended and started anew."""
        if seat.process is not None:
            seat.process.kill()
        seat.restarts.append(why)
        self.on_event("worker replaced", None, f"instance {seat.index}: {why}")
        seat.reset(time.monotonic())

    def _watch(self) -> None:
        now = time.monotonic()
        for seat in self.seats:
            if seat.process is None:
                continue
            if now - seat.heard > (self.options.silence if seat.ready else max(LOADING, self.options.silence)):
                self._lose(seat, "silent", f"its worker gave no sign of life for {now - seat.heard:.0f} s")
                continue
            late = [hand for hand in seat.hands.values() if now - hand.since > hand.limit]
            if late:
                self._lose(seat, "time", f"it was not done within its {late[0].limit:.0f} s")

    def _close(self) -> None:
        for seat in self.seats:
            if seat.process is None:
                continue
            process = seat.process
            if not seat.hands:
                try:
                    process.send(Task("stop"))
                    process.connection.poll(2.0)
                except (OSError, EOFError):
                    pass
            process.kill()
            for hand in list(seat.hands.values()):
                self._fail(seat, hand, "stopped", f"stopped: {self.stopping or 'the runner ended'}")
            seat.reset(0.0)

    # Jobs go out.

    def _assign(self) -> None:
        for seat in self.seats:
            if not seat.free or seat.process is None:
                continue
            if self.options.two_phase and self._phase_over():
                self._next_phase()
            job = self._claim(seat)
            if job is None:
                continue
            path = self.conditionings(job.conditioning)
            if self.phase == "encode":
                task = Task("encode", job.id, job.request, conditioning=str(path))
            else:
                given = str(path) if job.state is State.DENOISING else None
                output = str(self.outputs(job.name))
                offload = job.offload or self.options.offload
                task = Task("make", job.id, job.request, output, conditioning=given, offload=offload)
            seat.take(job, "denoise" if task.conditioning and task.kind == "make" else "encode", self._limit(job))
            try:
                seat.process.send(task)
            except OSError:
                self._lose(seat, "killed")

    def _claim(self, seat: Seat) -> Job | None:
        avoid = sum(not other.retired for other in self.seats) > 1
        if self.phase == "encode":
            return self.queue.claim_encoding(seat.index, seat.part, avoid)
        job = self.queue.claim(State.ENCODED, State.DENOISING, seat.index, seat.part, avoid)
        if job is None and not self.options.two_phase:
            job = self.queue.claim(State.QUEUED, State.ENCODING, seat.index, seat.part, avoid)
        return job

    def _phase_over(self) -> bool:
        counts = self.queue.counts()
        if self.phase == "encode":
            return not counts.get(State.QUEUED) and not counts.get(State.ENCODING)
        return bool(counts.get(State.QUEUED)) and not counts.get(State.ENCODED)

    def _next_phase(self) -> None:
        self.phase = "make" if self.phase == "encode" else "encode"
        self.on_event("phase", None, "denoising" if self.phase == "make" else "encoding")
        if self.phase == "make":
            for seat in self.seats:
                if seat.ready and seat.process is not None:
                    seat.process.send(Task("free"))

    def _limit(self, job: Job) -> float:
        if self.options.time_limit is not None:
            return self.options.time_limit
        if not self.done_cost:
            return 86_400.0  # nothing is known yet
        return max(600.0, 10.0 * job.cost * self.done_seconds / self.done_cost)

    # Jobs come back.

    def _hear(self, seat: Seat, message: Message) -> None:
        if message.kind == "beat":
            seat.memory = int(message.data.get("memory", 0))
            return
        if message.kind == "ready":
            seat.ready = True
            self.first_ready = self.first_ready or time.monotonic()
            return
        if message.kind == "broken":  # it cannot load the model
            self._lose(seat, "killed", message.text)
            return
        hand = seat.hands.get(message.job)
        if hand is None:
            return
        if message.kind == "step":
            hand.step, hand.steps = message.step, message.steps
            hand.step_seconds.append(message.seconds)
        elif message.kind == "stage":
            hand.stage = message.stage
            self.queue.move(hand.job.id, STAGES[message.stage])
        elif message.kind == "denoised":
            hand.stage = "denoised"
            seat.busy = False
            self.queue.move(hand.job.id, State.DENOISED)
        elif message.kind == "encoded":
            seat.drop(hand.job.id)
            self.queue.release(hand.job.id, State.ENCODED, "encoded", attempts=0)
            self.queue.encoded([hand.job.conditioning])
            self.on_event("encoded", hand.job, "")
        elif message.kind == "done":
            self._finish(seat, hand, message.data)
        elif message.kind == "error":
            self._fail(seat, hand, message.error, message.text)

    def _finish(self, seat: Seat, hand: Hand, result: dict[str, Any]) -> None:
        seat.drop(hand.job.id)
        seat.failures = 0
        seat.lost_jobs.clear()
        output = self.outputs(hand.job.name)
        if not output.exists():
            self._fail(seat, hand, "generation", f"its worker reported {output} as done, but there is no such file")
            return
        result = {**result, **file_facts(output)}
        if self.queue.release(hand.job.id, State.DONE, "done", result=result):
            seconds = time.monotonic() - hand.since
            self.done_cost += hand.job.cost
            self.done_seconds += seconds
            self.on_event("done", hand.job, f"{seconds:.1f} s")
        why = seat.tired(hand, int(result.get("memory", 0)))
        seat.worn = seat.worn or why
        if seat.worn and not seat.hands:
            self._replace(seat, seat.worn)

    def _fail(self, seat: Seat, hand: Hand, error: str, text: str) -> None:
        seat.drop(hand.job.id)
        job = self.queue.job(hand.job.id)  # whether it is to be cancelled, and its attempts, may have changed
        stored = self.conditionings(job.conditioning).with_suffix(".json").exists()
        again = State.ENCODED if stored and error != "conditioning" else State.QUEUED
        verdict = judge(job, error, text, again, self.options.max_attempts)
        attempts = job.attempts if verdict.counted else max(0, job.attempts - 1)
        set_to: dict[str, Any] = {"attempts": attempts, "offload": int(verdict.offload)}
        if not verdict.counted:
            set_to["instance"] = None
        released = self.queue.release(job.id, verdict.state, error, verdict.reason, **set_to)
        output = self.outputs(job.name)
        if released and output.exists() and adopt(self.queue, job, ClipPlace(output.parent, job.name)):
            self.on_event("done", job, f"its clip was published before: {text}")
            return
        self.holding = self.holding or verdict.hold
        if released:
            self.on_event(str(verdict.state), job, verdict.reason)

    # Once a second.

    def _beat(self) -> None:
        self._beat_at = time.monotonic()
        steps = [
            (hand.job.id, hand.step, hand.steps, hand.step_seconds[-1])
            for seat in self.seats
            for hand in seat.hands.values()
            if hand.step_seconds
        ]
        for job_id in self.queue.progress(steps, json.dumps([seat.describe() for seat in self.seats])):
            for seat in self.seats:
                if job_id in seat.hands and seat.process is not None:
                    seat.process.cancel(job_id)
        wish = self.queue.setting("wish")
        self.paused = wish == "pause"
        if wish == "drain":
            self.stop("drained")
        if self.holding and self.has_room():
            self.holding = False
        for job_id in reclaim(self.queue.journal):
            self.on_event("taken over", self.queue.job(job_id), "its runner had ended")
        self.on_beat(self)

    def _finished(self) -> bool:
        if any(seat.hands for seat in self.seats):
            return False
        if self.stopping:
            return True
        if all(seat.retired for seat in self.seats):
            raise WorkersLost(f"no worker can be kept running: {self._last_loss}")
        if self.options.watch:
            return False
        counts = self.queue.counts()
        # What another runner has in hand may come back: stay until it is settled.
        return not sum(count for state, count in counts.items() if state not in FINAL)
