"""What becomes of a job whose attempt went wrong."""

from dataclasses import dataclass

from .rows import Job
from .states import State

# The job itself: no worker will do better.
HOPELESS = {"request", "media", "model", "licence"}
# Its worker was lost over it: again elsewhere, and set aside when that repeats.
HARMFUL = {"killed", "time", "silent"}


@dataclass(frozen=True)
class Verdict:
    """The job's next state. `counted`: whether the attempt was the job's own; `hold`: nothing should be started until
    the disk has room."""

    state: State
    reason: str
    counted: bool = True
    offload: bool = False
    hold: bool = False


def judge(job: Job, error: str, text: str, again: State, max_attempts: int) -> Verdict:
    """`error` is the kind of a worker's error message, or how the worker was lost; `again` is where a retry starts."""
    if error == "cancelled" or job.state is State.CANCELLING:
        return Verdict(State.CANCELLED, "cancelled by the user")
    if error == "stopped":
        return Verdict(again, text, counted=False, offload=job.offload)
    if error in HOPELESS:
        return Verdict(State.FAILED, text, offload=job.offload)
    if error == "memory":
        if job.offload:
            return Verdict(State.SET_ASIDE, f"out of memory, also with offload: {text}", offload=True)
        return Verdict(again, f"out of memory, tried again with offload: {text}", offload=True)
    last = job.attempts >= max_attempts
    if error == "conditioning" and not last:  # what was stored cannot be read: it is made again
        return Verdict(State.QUEUED, text, offload=job.offload)
    if error == "disk":
        reason = f"{text} (attempt {job.attempts} of {max_attempts})"
        return Verdict(State.FAILED if last else again, reason, offload=job.offload, hold=True)
    if last:
        state = State.SET_ASIDE if error in HARMFUL else State.FAILED
        return Verdict(state, f"{text} (after {job.attempts} attempts)", offload=job.offload)
    return Verdict(again, f"{text} (attempt {job.attempts} of {max_attempts})", offload=job.offload)
