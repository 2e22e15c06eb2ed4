"""The queue as one runner has it: jobs are claimed, moved through their stages and released.

Every change of a held job is one transaction, and conditional on still holding it.
"""

import json
import sqlite3
import time
from collections.abc import Iterable
from typing import Any

from .journal import Journal
from .queue import JobQueue
from .rows import Job, as_job, marks
from .states import ACTIVE, FINAL, WAITING, State

# That the job's last attempt went wrong on this worker.
FAILED_HERE = "(attempts > 0 AND instance IS :instance)"
# Nobody is making this job's conditioning at this moment.
UNTOUCHED = "conditioning NOT IN (SELECT conditioning FROM jobs WHERE state = 'encoding')"


class RunnerQueue(JobQueue):
    """`runner` is the id under which jobs are held; `registered` gives one whose jobs are taken over when it dies."""

    def __init__(self, journal: Journal, runner: str) -> None:
        super().__init__(journal)
        self.runner = runner

    def claim(self, source: State, target: State, instance: int, part: str = "", patience: float = 0.0) -> Job | None:
        """Take the next job that is in `source`: highest priority, then what the worker has loaded (`part`), then the
        most expensive.

        A job that went wrong on this worker comes last, and is left to the other workers for `patience` seconds.
        """
        return self._claim("TRUE", source, target, instance, part, patience)

    def claim_encoding(self, instance: int, part: str = "", patience: float = 0.0) -> Job | None:
        """Take the next queued job whose conditioning nobody is making at this moment."""
        return self._claim(UNTOUCHED, State.QUEUED, State.ENCODING, instance, part, patience)

    def to_encode(self) -> int:
        """How many queued jobs have a conditioning that nobody is making at this moment."""
        with self.journal.reading() as db:
            query = f"SELECT COUNT(*) FROM jobs WHERE state = ? AND {UNTOUCHED}"
            return db.execute(query, (State.QUEUED,)).fetchone()[0]

    def _claim(self, where: str, source: State, target: State, instance: int, part: str, patience: float) -> Job | None:
        with self.journal.writing(durable=False) as db:
            row = db.execute(
                f"SELECT * FROM jobs WHERE state = :source AND {where} AND NOT ({FAILED_HERE} AND EXISTS "
                "(SELECT 1 FROM attempts AS tried WHERE tried.job = jobs.id AND tried.ended > :since)) "
                f"ORDER BY priority DESC, {FAILED_HERE}, part = :part DESC, cost DESC, number LIMIT 1",
                {"source": source, "instance": instance, "part": part, "since": time.time() - patience},
            ).fetchone()
            return None if row is None else self._take(db, as_job(row), target, instance)

    def _take(self, db: sqlite3.Connection, job: Job, target: State, instance: int) -> Job:
        now = time.time()
        making = target is not State.ENCODING or job.state is not State.QUEUED
        started = now if making or job.started is None else job.started
        db.execute(
            "UPDATE jobs SET state = ?, runner = ?, instance = ?, beat = ?, attempts = ?, started = ?, step = NULL "
            "WHERE id = ?",
            (target, self.runner, instance, now, job.attempts + 1, started, job.id),
        )
        number = db.execute("SELECT COUNT(*) FROM attempts WHERE job = ?", (job.id,)).fetchone()[0] + 1
        db.execute(
            "INSERT INTO attempts (job, attempt, runner, instance, started) VALUES (?, ?, ?, ?, ?)",
            (job.id, number, self.runner, instance, now),
        )
        return as_job(db.execute("SELECT * FROM jobs WHERE id = ?", (job.id,)).fetchone())

    def move(self, job_id: str, target: State) -> bool:
        """A held job enters its next stage. False when it is not held any more, or is to be cancelled."""
        with self.journal.writing(durable=False) as db:
            held = [state for state in ACTIVE if state is not State.CANCELLING]
            done = db.execute(
                f"UPDATE jobs SET state = ?, beat = ? WHERE id = ? AND runner = ? AND state IN ({marks(held)})",
                (target, time.time(), job_id, self.runner, *held),
            )
            return done.rowcount == 1

    def release(
        self,
        job_id: str,
        target: State,
        outcome: str,
        reason: str | None = None,
        *,
        result: dict[str, Any] | None = None,
        **set_to: int | None,
    ) -> bool:
        """A held job leaves its worker for `target`, or is cancelled where it would wait again and that was asked for.

        `outcome` and `reason` go to the list of attempts. `set_to`: columns `attempts`, `offload`, `instance`.
        False, and nothing changes, when it is not held any more.
        """
        now = time.time()
        with self.journal.writing() as db:
            db.execute(
                "UPDATE attempts SET ended = ?, outcome = ?, reason = ? WHERE job = ? AND runner = ? AND ended IS NULL",
                (now, outcome, reason, job_id, self.runner),
            )
            row = db.execute(
                f"SELECT state FROM jobs WHERE id = ? AND runner = ? AND state IN ({marks(ACTIVE)})",
                (job_id, self.runner, *ACTIVE),
            ).fetchone()
            if row is None:
                return False
            if row["state"] == State.CANCELLING and target in WAITING:
                target, reason = State.CANCELLED, "cancelled by the user"
            columns: dict[str, Any] = {"state": target, "reason": reason, "runner": None, "beat": None, "step": None}
            columns |= set_to
            if target in FINAL:
                columns["finished"] = now
            if result is not None:
                columns["result"] = json.dumps(result)
            names = ", ".join(f"{name} = ?" for name in columns)
            db.execute(f"UPDATE jobs SET {names} WHERE id = ?", (*columns.values(), job_id))
            return True

    def progress(self, steps: Iterable[tuple[str, int, int, float]], instances: str) -> list[str]:
        """One beat of this runner: (job, step, steps, seconds per step) of its jobs, and its workers as JSON.

        Returns the ids of its jobs that are to be cancelled.
        """
        now = time.time()
        with self.journal.writing(durable=False) as db:
            db.execute("UPDATE runners SET beat = ?, instances = ? WHERE id = ?", (now, instances, self.runner))
            db.execute("UPDATE jobs SET beat = ? WHERE runner = ?", (now, self.runner))
            db.executemany(
                "UPDATE jobs SET step = ?, steps = ?, step_seconds = ? WHERE id = ? AND runner = ?",
                [(step, total, seconds, job, self.runner) for job, step, total, seconds in steps],
            )
            rows = db.execute(
                "SELECT id FROM jobs WHERE runner = ? AND state = ?", (self.runner, State.CANCELLING)
            ).fetchall()
        return [row["id"] for row in rows]
