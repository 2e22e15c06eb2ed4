"""The durable queue: JSON lines in, a journal on disk, and a runner that makes every job exactly once."""

from .journal import Journal, JournalError, open_journal
from .lines import JobLine, LineErrors, read_lines
from .queue import JobQueue
from .rows import Job, NewJob
from .runner_queue import RunnerQueue
from .states import ACTIVE, FINAL, State

__all__ = [
    "ACTIVE",
    "FINAL",
    "Job",
    "JobLine",
    "JobQueue",
    "Journal",
    "JournalError",
    "LineErrors",
    "NewJob",
    "RunnerQueue",
    "State",
    "open_journal",
    "read_lines",
]
