"""The durable queue: JSON lines in, a journal on disk, and a runner that makes every job exactly once."""

from .journal import Journal, JournalError, open_journal
from .lines import JobLine, LineErrors, read_lines
from .queue import Job, JobQueue, NewJob
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
    "State",
    "open_journal",
    "read_lines",
]
