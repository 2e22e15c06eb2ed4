"""Who is alive: every runner holds a lock file while it lives; whoever finds it free takes its jobs over."""

import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from .journal import Journal
from .rows import marks
from .runner_queue import RunnerQueue
from .states import ACTIVE, State


@contextmanager
def registered(journal: Journal) -> Iterator[RunnerQueue]:
    """This process as a runner of the journal. The kernel frees the lock when the process ends, however it ends, also
    across containers and restarts of the machine, where process ids mean nothing."""
    runner = uuid.uuid4().hex[:12]
    folder = journal.path.parent / "runners"
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / f"{runner}.lock"
    # Not inherited by workers: they must not keep a dead runner's lock.
    descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        now = time.time()
        with journal.writing() as db:
            db.execute("INSERT INTO runners VALUES (?, ?, ?, NULL, ?, '[]')", (runner, os.getpid(), now, now))
        yield RunnerQueue(journal, runner)
        with journal.writing() as db:
            db.execute("UPDATE runners SET ended = ?, instances = '[]' WHERE id = ?", (time.time(), runner))
    finally:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def alive(journal: Journal, runner: str) -> bool:
    """Whether that runner's process lives: nobody else gets its lock."""
    try:
        descriptor = os.open(journal.path.parent / "runners" / f"{runner}.lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def reclaim(journal: Journal) -> list[str]:
    """Queue the jobs of dead runners again. Returns their ids.

    The attempt is not counted against a job: that its runner was killed says nothing of it.
    """
    back: list[str] = []
    with journal.reading() as db:
        names = [row["id"] for row in db.execute("SELECT id FROM runners WHERE ended IS NULL")]
        held = {row["runner"] for row in db.execute("SELECT DISTINCT runner FROM jobs WHERE runner IS NOT NULL")}
    for runner in {*names, *held}:
        if not alive(journal, runner):
            back += _take_back(journal, runner)
            (journal.path.parent / "runners" / f"{runner}.lock").unlink(missing_ok=True)
    return back


def _take_back(journal: Journal, runner: str) -> list[str]:
    dead = RunnerQueue(journal, runner)
    with journal.reading() as db:
        query = f"SELECT id, attempts FROM jobs WHERE runner = ? AND state IN ({marks(ACTIVE)})"
        rows = db.execute(query, (runner, *ACTIVE)).fetchall()
    back = []
    for row in rows:
        attempts = max(0, row["attempts"] - 1)
        # False where another runner was first.
        if dead.release(row["id"], State.QUEUED, "lost", "its runner ended", attempts=attempts, instance=None):
            back.append(row["id"])
    with journal.writing() as db:
        db.execute("UPDATE runners SET ended = ?, instances = '[]' WHERE id = ?", (time.time(), runner))
    return back
