"""`videoinfer jobs`: a queue seen and steered from any terminal, while it runs or not."""

import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from ..errors import RequestError
from ..jobs import Job, JobQueue, State, open_journal
from ..jobs.runners import alive
from .batch import journal_path
from .batch_screen import duration, instance_table

SHOWN = 40
WISHES = {"pause": "pause", "drain": "drain", "resume": None}


def open_queue(folder: Path, journal: Path | None = None) -> JobQueue:
    return JobQueue(open_journal(journal_path(folder, journal)))


def describe(queue: JobQueue) -> dict[str, Any]:
    """The queue in JSON's types: counts, runners that live, and every job."""
    with queue.journal.reading() as db:
        rows = db.execute("SELECT id, pid, started, beat, instances FROM runners WHERE ended IS NULL").fetchall()
    runners = [dict(row) for row in rows if alive(queue.journal, row["id"])]
    return {
        "model": queue.setting("model"),
        "wish": queue.setting("wish"),
        "counts": {str(state): count for state, count in queue.counts().items()},
        "runners": runners,
        "jobs": [describe_job(job) for job in queue.jobs()],
    }


def describe_job(job: Job) -> dict[str, Any]:
    keys = ("id", "number", "line", "name", "priority", "attempts", "reason", "step", "steps", "step_seconds")
    return {**{key: getattr(job, key) for key in keys}, "state": str(job.state), "offload": job.offload}


def show(queue: JobQueue, everything: bool = False) -> Group:
    """The queue as a person sees it: what is in hand, what went wrong, then what is done and waits."""
    told = describe(queue)
    counts = ", ".join(f"{count} {state}" for state, count in told["counts"].items()) or "no jobs"
    head = f"{counts}" + (f", {told['wish']} asked for" if told["wish"] else "")
    parts: list[Any] = [head]
    for runner in told["runners"]:
        parts.append(f"runner {runner['pid']}, for {duration(time.time() - runner['started'])}")
        parts.append(instance_table(json.loads(runner["instances"])))
    if not told["runners"]:
        parts.append("no runner: `videoinfer batch` with the same file goes on")
    order = {State.SET_ASIDE: 0, State.FAILED: 0, State.DONE: 2, State.QUEUED: 3, State.ENCODED: 3, State.CANCELLED: 4}
    jobs = sorted(queue.jobs(), key=lambda job: (order.get(job.state, 1), -job.priority, job.number))
    table = Table("id", "line", "state", "priority", "attempts", "reason", box=None, pad_edge=False)
    for job in jobs if everything else jobs[:SHOWN]:
        values = (job.name, job.line, job.state, job.priority or "", job.attempts or "", job.reason or "")
        table.add_row(*(escape(str("" if value is None else value)) for value in values))
    parts.append(table)
    if len(jobs) > SHOWN and not everything:
        parts.append(f"and {len(jobs) - SHOWN} more: --all shows them")
    return Group(*parts)


def watch(queue: JobQueue, console: Console) -> None:
    """The same, kept up to date until Ctrl-C."""
    with Live(console=console, refresh_per_second=2, screen=False) as live:
        while True:
            live.update(show(queue))
            time.sleep(1.0)


def retry(queue: JobQueue, words: list[str]) -> str:
    jobs = queue.find(words) if words else queue.jobs(State.FAILED, State.SET_ASIDE)
    count = queue.retry([job.id for job in jobs])
    return f"{count} of {len(jobs)} jobs queued again" + (
        "" if count == len(jobs) else "; the others are not finished or are done"
    )


def cancel(queue: JobQueue, words: list[str]) -> str:
    jobs = queue.find(_some(words))
    states = queue.cancel([job.id for job in jobs])
    return "\n".join(f"{job.name}: {states[job.id]}" for job in jobs)


def prioritise(queue: JobQueue, priority: int, words: list[str]) -> str:
    jobs = queue.find(_some(words))
    queue.prioritise([job.id for job in jobs], priority)
    return f"priority {priority} for {len(jobs)} jobs"


def add(folder: Path, file: str, repeat: int, journal: Path | None) -> str:
    """Checked as a batch checks them, against the queue's own model."""
    from .batch import BatchOptions, Intake

    queue = open_queue(folder, journal)
    model = queue.setting("model") or "demo"
    options = BatchOptions(folder=folder, journal=journal, model=model, repeat=repeat)
    intake = Intake(options, model)
    jobs, equal = intake.jobs(file, options)
    added, known = queue.add(jobs)
    return f"{added} jobs added, {known} known already" + (f", {equal} equal lines" if equal else "")


def wish(queue: JobQueue, word: str) -> str:
    """pause: start nothing new; drain: the same, and the runners end; resume: go on."""
    queue.set("wish", WISHES[word])
    return {
        "pause": "paused: jobs in hand are finished, nothing new is started until `resume`",
        "drain": "draining: the runners end when the jobs in hand are finished",
        "resume": "going on",
    }[word]


def _some(words: list[str]) -> list[str]:
    if not words:
        raise RequestError("no job is named: give ids as `videoinfer jobs show DIR` lists them.")
    return words
