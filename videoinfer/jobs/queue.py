"""The queue as everybody sees it: jobs are added, looked at, and steered by a user."""

import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import RequestError
from .journal import Journal
from .rows import Job, NewJob, as_job, marks
from .states import ACTIVE, WAITING, State


class JobQueue:
    """The jobs of one journal. `RunnerQueue` adds what only a runner does with them."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    # Settings of the queue, all text.

    def setting(self, key: str) -> str | None:
        with self.journal.reading() as db:
            row = db.execute("SELECT value FROM settings WHERE key = ?", (key,)).fetchone()
        return row["value"] if row else None

    def set(self, key: str, value: str | None) -> None:
        with self.journal.writing() as db:
            if value is None:
                db.execute("DELETE FROM settings WHERE key = ?", (key,))
            else:
                db.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (key, value))

    # Jobs come in and are looked at.

    def add(self, jobs: Iterable[NewJob]) -> tuple[int, int]:
        """Add jobs; those that are there already stay as they are. Returns how many were added, and known before.

        Raises RequestError, and adds nothing, when a name belongs to a job of another content.
        """
        added = known = 0
        with self.journal.writing() as db:
            number = db.execute("SELECT COALESCE(MAX(number), 0) FROM jobs").fetchone()[0]
            for job in jobs:
                if db.execute("SELECT 1 FROM jobs WHERE id = ?", (job.id,)).fetchone():
                    known += 1
                    continue
                other = db.execute("SELECT id, line FROM jobs WHERE name = ?", (job.name,)).fetchone()
                if other is not None:
                    raise RequestError(
                        f"the id {job.name!r} of line {job.line} belongs to another job of this queue (line "
                        f"{other['line']}): ids name files; give another id, or none."
                    )
                number += 1
                db.execute(
                    "INSERT INTO jobs (id, number, line, request, content, conditioning, name, part, cost, state, "
                    "priority, added) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        *(job.id, number, job.line, job.request, job.content, job.conditioning, job.name, job.part),
                        *(job.cost, State.QUEUED, job.priority, time.time()),
                    ),
                )
                added += 1
        return added, known

    def jobs(self, *states: State) -> list[Job]:
        """The jobs in these states (all without any), in the order of the queue."""
        where = f"WHERE state IN ({marks(states)})" if states else ""
        with self.journal.reading() as db:
            return [as_job(row) for row in db.execute(f"SELECT * FROM jobs {where} ORDER BY number", states)]

    def job(self, job_id: str) -> Job:
        with self.journal.reading() as db:
            row = db.execute("SELECT * FROM jobs WHERE id = ?", (job_id,)).fetchone()
        if row is None:
            raise RequestError(f"there is no job {job_id!r} in this queue: `videoinfer jobs DIR` lists them.")
        return as_job(row)

    def counts(self) -> dict[State, int]:
        with self.journal.reading() as db:
            rows = db.execute("SELECT state, COUNT(*) FROM jobs GROUP BY state").fetchall()
        return {State(state): count for state, count in rows}

    def find(self, words: Sequence[str]) -> list[Job]:
        """The jobs that `words` mean: ids, beginnings of ids that fit one job only, or names. RequestError."""
        everything = self.jobs()
        found = []
        for word in words:
            fitting = [job for job in everything if word in (job.id, job.name)]
            fitting = fitting or [job for job in everything if job.id.startswith(word)]
            if len(fitting) != 1:
                what = "no job" if not fitting else f"{len(fitting)} jobs ({', '.join(j.id for j in fitting[:5])})"
                raise RequestError(f"{word!r} fits {what}: give an id as `videoinfer jobs DIR` lists it.")
            found += fitting
        return found

    def attempts(self, job_id: str) -> list[dict[str, Any]]:
        with self.journal.reading() as db:
            rows = db.execute("SELECT * FROM attempts WHERE job = ? ORDER BY attempt", (job_id,)).fetchall()
        return [dict(row) for row in rows]

    # What is found on disk decides about jobs that nobody holds.

    def encoded(self, keys: Iterable[str]) -> None:
        """The conditionings of these keys are on disk: every queued job that needs one of them is encoded."""
        with self.journal.writing() as db:
            db.executemany(
                "UPDATE jobs SET state = ? WHERE state = ? AND conditioning = ?",
                [(State.ENCODED, State.QUEUED, key) for key in keys],
            )

    def settle(self, job_id: str, target: State, reason: str | None = None, result: dict | None = None) -> None:
        """Put a job that nobody holds into `target`."""
        with self.journal.writing() as db:
            db.execute(
                "UPDATE jobs SET state = ?, reason = ?, result = COALESCE(?, result), finished = COALESCE(finished, ?) "
                "WHERE id = ? AND runner IS NULL",
                (target, reason, json.dumps(result) if result else None, time.time(), job_id),
            )

    def redo(self, job_id: str, reason: str) -> None:
        """Queue a finished job again, because its clip is not on disk any more as it was made."""
        with self.journal.writing() as db:
            db.execute(
                "UPDATE jobs SET state = ?, attempts = 0, reason = ?, finished = NULL, result = NULL "
                "WHERE id = ? AND state = ?",
                (State.QUEUED, reason, job_id, State.DONE),
            )

    # What a user asks for.

    def cancel(self, job_ids: Sequence[str]) -> dict[str, State]:
        """Cancel jobs: those that wait at once, those in hand when their runner sees it. Final ones stay."""
        with self.journal.writing() as db:
            for job_id in job_ids:
                db.execute(
                    f"UPDATE jobs SET state = ?, reason = 'cancelled by the user', finished = ? "
                    f"WHERE id = ? AND state IN ({marks(WAITING)})",
                    (State.CANCELLED, time.time(), job_id, *WAITING),
                )
                db.execute(
                    f"UPDATE jobs SET state = ? WHERE id = ? AND state IN ({marks(ACTIVE)})",
                    (State.CANCELLING, job_id, *ACTIVE),
                )
        return {job_id: self.job(job_id).state for job_id in job_ids}

    def retry(self, job_ids: Sequence[str]) -> int:
        """Queue failed, set-aside and cancelled jobs again, with no attempts counted. Returns how many."""
        again = (State.FAILED, State.SET_ASIDE, State.CANCELLED)
        with self.journal.writing() as db:
            return sum(
                db.execute(
                    "UPDATE jobs SET state = ?, attempts = 0, offload = 0, reason = NULL, finished = NULL "
                    f"WHERE id = ? AND state IN ({marks(again)})",
                    (State.QUEUED, job_id, *again),
                ).rowcount
                for job_id in job_ids
            )

    def prioritise(self, job_ids: Sequence[str], priority: int) -> None:
        """Higher runs first; 0 is what a job starts with."""
        with self.journal.writing() as db:
            db.executemany("UPDATE jobs SET priority = ? WHERE id = ?", [(priority, job_id) for job_id in job_ids])
