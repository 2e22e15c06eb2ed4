"""What a run of a queue may be told."""

from dataclasses import dataclass

SILENCE = 60.0  # seconds; every worker beats each two


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
