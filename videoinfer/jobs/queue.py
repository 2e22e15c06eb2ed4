"""What can be done with the jobs of a journal. Every change of a held job is conditional on still holding it."""

import json
import sqlite3
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import RequestError
from .journal import Journal
from .states import ACTIVE, FINAL, WAITING, State


@dataclass(frozen=True)
class NewJob:
    """A job to add. `content` decides the clip, `name` its file, `part` what a worker keeps loaded for it."""

    id: str
    line: int | None
    request: str
    content: str
    conditioning: str
    name: str
    part: str
    cost: float
    priority: int = 0


@dataclass(frozen=True)
class Job:
    """A row of the journal."""

    id: str
    number: int
    line: int | None
    request: str
    content: str
    conditioning: str
    name: str
    part: str
    cost: float
    state: State
    priority: int
    attempts: int
    offload: bool
    reason: str | None
    runner: str | None
    instance: int | None
    beat: float | None
    step: int | None
    steps: int | None
    step_seconds: float | None
    added: float
    started: float | None
    finished: float | None
    result: dict[str, Any] | None


def _job(row: sqlite3.Row) -> Job:
    data = dict(row)
    data["state"] = State(data["state"])
    data["offload"] = bool(data["offload"])
    data["result"] = json.loads(data["result"]) if data["result"] else None
    return Job(**data)


class JobQueue:
    """The jobs of one journal, as one runner (`runner` is its id) or an onlooker (None) sees them."""

    def __init__(self, journal: Journal, runner: str | None = None) -> None:
        self.journal, self.runner = journal, runner

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
        where = f"WHERE state IN ({_marks(states)})" if states else ""
        with self.journal.reading() as db:
            return [_job(row) for row in db.execute(f"SELECT * FROM jobs {where} ORDER BY number", states)]

    def job(self, job_id: str) -> Job:
        with self.journal.reading() as db:
            row = db.execute("SELECT * FROM jobs WHERE id = ?", (job_id,)).fetchone()
        if row is None:
            raise RequestError(f"there is no job {job_id!r} in this queue: `videoinfer jobs DIR` lists them.")
        return _job(row)

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

    # What a runner does with the jobs that it holds.

    def claim(self, source: State, target: State, instance: int, part: str, avoid: bool) -> Job | None:
        """Take the next job that is in `source`: highest priority, then what the worker has loaded (`part`), then the
        most expensive. With `avoid`, not one that failed on this worker before."""
        with self.journal.writing(durable=False) as db:
            row = db.execute(
                "SELECT * FROM jobs WHERE state = ? AND NOT (? AND attempts > 0 AND instance IS ?) "
                "ORDER BY priority DESC, part = ? DESC, cost DESC, number LIMIT 1",
                (source, avoid, instance, part),
            ).fetchone()
            return None if row is None else self._take(db, _job(row), target, instance)

    def claim_encoding(self, instance: int, part: str, avoid: bool) -> Job | None:
        """Take the next queued job whose conditioning nobody is making at this moment."""
        with self.journal.writing(durable=False) as db:
            row = db.execute(
                "SELECT * FROM jobs WHERE state = ? AND NOT (? AND attempts > 0 AND instance IS ?) AND conditioning "
                "NOT IN (SELECT conditioning FROM jobs WHERE state = ?) "
                "ORDER BY priority DESC, part = ? DESC, cost DESC, number LIMIT 1",
                (State.QUEUED, avoid, instance, State.ENCODING, part),
            ).fetchone()
            return None if row is None else self._take(db, _job(row), State.ENCODING, instance)

    def encoded(self, keys: Iterable[str]) -> None:
        """The conditionings of these keys are on disk: every queued job that needs one of them is encoded."""
        with self.journal.writing() as db:
            db.executemany(
                "UPDATE jobs SET state = ? WHERE state = ? AND conditioning = ?",
                [(State.ENCODED, State.QUEUED, key) for key in keys],
            )

    def _take(self, db: sqlite3.Connection, job: Job, target: State, instance: int) -> Job:
        now = time.time()
        making = target is not State.ENCODING or job.state is not State.QUEUED
        attempts = job.attempts + 1
        db.execute(
            "UPDATE jobs SET state = ?, runner = ?, instance = ?, beat = ?, attempts = ?, started = ?, step = NULL "
            "WHERE id = ?",
            (
                target,
                self.runner,
                instance,
                now,
                attempts,
                now if making or job.started is None else job.started,
                job.id,
            ),
        )
        number = db.execute("SELECT COUNT(*) FROM attempts WHERE job = ?", (job.id,)).fetchone()[0] + 1
        db.execute(
            "INSERT INTO attempts (job, attempt, runner, instance, started) VALUES (?, ?, ?, ?, ?)",
            (job.id, number, self.runner, instance, now),
        )
        return _job(db.execute("SELECT * FROM jobs WHERE id = ?", (job.id,)).fetchone())

    def move(self, job_id: str, target: State) -> bool:
        """A held job enters its next stage. False when it is not held any more, or is to be cancelled."""
        with self.journal.writing(durable=False) as db:
            held = [state for state in ACTIVE if state is not State.CANCELLING]
            done = db.execute(
                f"UPDATE jobs SET state = ?, beat = ? WHERE id = ? AND runner = ? AND state IN ({_marks(held)})",
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
        result: dict | None = None,
        **set_to,
    ) -> bool:
        """A held job leaves its worker for `target`. False, and nothing changes, when it is not held any more.

        `outcome` and `reason` go to the list of attempts. `set_to`: columns `attempts`, `offload`, `instance`.
        """
        with self.journal.writing() as db:
            return self._release(db, job_id, self.runner, target, outcome, reason, result, set_to)

    def _release(self, db, job_id, runner, target, outcome, reason, result=None, set_to=None) -> bool:
        now = time.time()
        columns = {"state": target, "reason": reason, "runner": None, "beat": None, "step": None, **(set_to or {})}
        if target in FINAL:
            columns["finished"] = now
        if result is not None:
            columns["result"] = json.dumps(result)
        done = db.execute(
            f"UPDATE jobs SET {', '.join(f'{name} = ?' for name in columns)} "
            f"WHERE id = ? AND runner = ? AND state IN ({_marks(ACTIVE)})",
            (*columns.values(), job_id, runner, *ACTIVE),
        )
        db.execute(
            "UPDATE attempts SET ended = ?, outcome = ?, reason = ? WHERE job = ? AND runner = ? AND ended IS NULL",
            (now, outcome, reason, job_id, runner),
        )
        return done.rowcount == 1

    def settle(self, job_id: str, target: State, reason: str | None = None, result: dict | None = None) -> None:
        """Put a job that nobody holds into `target`: what was found on disk decides, not a worker."""
        with self.journal.writing() as db:
            db.execute(
                "UPDATE jobs SET state = ?, reason = ?, result = COALESCE(?, result), finished = COALESCE(finished, ?) "
                "WHERE id = ? AND runner IS NULL",
                (target, reason, json.dumps(result) if result else None, time.time(), job_id),
            )

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

    # What a user asks for.

    def cancel(self, job_ids: Sequence[str]) -> dict[str, State]:
        """Cancel jobs: those that wait at once, those in hand when their runner sees it. Final ones stay."""
        with self.journal.writing() as db:
            for job_id in job_ids:
                db.execute(
                    f"UPDATE jobs SET state = ?, reason = 'cancelled by the user', finished = ? "
                    f"WHERE id = ? AND state IN ({_marks(WAITING)})",
                    (State.CANCELLED, time.time(), job_id, *WAITING),
                )
                db.execute(
                    f"UPDATE jobs SET state = ? WHERE id = ? AND state IN ({_marks(ACTIVE)})",
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
                    f"WHERE id = ? AND state IN ({_marks(again)})",
                    (State.QUEUED, job_id, *again),
                ).rowcount
                for job_id in job_ids
            )

    def redo(self, job_id: str, reason: str) -> None:
        """Queue a finished job again, because its clip is not on disk any more as it was made."""
        with self.journal.writing() as db:
            db.execute(
                "UPDATE jobs SET state = ?, attempts = 0, reason = ?, finished = NULL, result = NULL "
                "WHERE id = ? AND state = ?",
                (State.QUEUED, reason, job_id, State.DONE),
            )

    def prioritise(self, job_ids: Sequence[str], priority: int) -> None:
        """Higher runs first; 0 is what a job starts with."""
        with self.journal.writing() as db:
            db.executemany("UPDATE jobs SET priority = ? WHERE id = ?", [(priority, job_id) for job_id in job_ids])

    def attempts(self, job_id: str) -> list[dict[str, Any]]:
        with self.journal.reading() as db:
            rows = db.execute("SELECT * FROM attempts WHERE job = ? ORDER BY attempt", (job_id,)).fetchall()
        return [dict(row) for row in rows]


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
