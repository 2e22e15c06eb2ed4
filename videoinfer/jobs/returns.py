"""Jobs come back: what workers say of the jobs in their hands becomes the state of the journal."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import MediaError
from .on_disk import ClipPlace, adopt, file_facts
from .pace import Pace
from .protocol import Message
from .rows import Job
from .runner_queue import RunnerQueue
from .seat import Hand, Seat
from .states import State
from .verdict import judge

STAGES = {"encode": State.ENCODING, "denoise": State.DENOISING, "decode": State.DECODING, "write": State.DECODING}


class Returns:
    """`holding` becomes true when the disk is full: nothing should be started until it has room."""

    def __init__(
        self,
        queue: RunnerQueue,
        outputs: Callable[[str], Path],
        conditionings: Callable[[str], Path],
        pace: Pace,
        max_attempts: int,
        on_event: Callable[[str, Job | None, str], None],
    ) -> None:
        self.queue, self.outputs, self.conditionings = queue, outputs, conditionings
        self.pace, self.max_attempts, self.on_event = pace, max_attempts, on_event
        self.holding = False

    def hear(self, seat: Seat, message: Message) -> None:
        """A worker's word on one of its jobs."""
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
            self._encoded(seat, hand)
        elif message.kind == "done":
            self._done(seat, hand, message.data)
        elif message.kind == "error":
            self.failed(seat, hand, message.error, message.text)

    def _encoded(self, seat: Seat, hand: Hand) -> None:
        seat.drop(hand.job.id)
        self.pace.note(hand.kind, hand.work, time.monotonic() - hand.since)
        self.queue.release(hand.job.id, State.ENCODED, "encoded", attempts=0)
        self.queue.encoded([hand.job.conditioning])
        self.on_event("encoded", hand.job, "")

    def _done(self, seat: Seat, hand: Hand, result: dict[str, Any]) -> None:
        seat.drop(hand.job.id)
        seat.failures = 0
        seat.lost_jobs.clear()
        output = self.outputs(hand.job.name)
        try:
            result = {**result, **file_facts(output)}
        except OSError as error:
            text = f"its worker reported {output} as done, which cannot be read: {error.strerror}"
            self.failed(seat, hand, "generation", text)
            return
        if self.queue.release(hand.job.id, State.DONE, "done", result=result):
            seconds = time.monotonic() - hand.since
            self.pace.note(hand.kind, hand.work, seconds)
            self.on_event("done", hand.job, f"{seconds:.1f} s")
        why = seat.tired(hand, int(result.get("memory", 0)))
        seat.worn = seat.worn or why

    def failed(self, seat: Seat, hand: Hand, error: str, text: str) -> None:
        """The attempt went wrong, by its own `error` or with its worker."""
        seat.drop(hand.job.id)
        job = self.queue.job(hand.job.id)  # whether it is to be cancelled, and its attempts, may have changed
        stored = self.conditionings(job.conditioning).with_suffix(".json").exists()
        again = State.ENCODED if stored and error != "conditioning" else State.QUEUED
        verdict = judge(job, error, text, again, self.max_attempts)
        attempts = job.attempts if verdict.counted else max(0, job.attempts - 1)
        set_to: dict[str, Any] = {"attempts": attempts, "offload": int(verdict.offload)}
        if not verdict.counted:
            set_to["instance"] = None
        released = self.queue.release(job.id, verdict.state, error, verdict.reason, **set_to)
        if released and self._published(job):
            self.on_event("done", job, f"its clip was published before: {text}")
            return
        self.holding = self.holding or verdict.hold
        if released:
            self.on_event(str(verdict.state), job, verdict.reason)

    def _published(self, job: Job) -> bool:
        output = self.outputs(job.name)
        try:
            return output.exists() and adopt(self.queue, job, ClipPlace(output.parent, job.name))
        except (OSError, MediaError):  # a full disk: the next run looks again
            return False
