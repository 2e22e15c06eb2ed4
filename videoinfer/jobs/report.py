"""What is left of a batch: summary.json, jobs.csv, and index.html, a page that plays every clip."""

import csv
import html
import io
import json
import os
import statistics
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..request import GenerationRequest
from .queue import JobQueue
from .rows import Job
from .states import State

COLUMNS: tuple[str, ...] = (
    "number",
    "line",
    "id",
    "name",
    "state",
    "attempts",
    "seconds",
    "reason",
    "seed",
    "prompt",
    "file",
)


def summarise(queue: JobQueue, seconds: float, working: float, made: int) -> dict[str, Any]:
    """Counts, rates and stage times. `made` clips in `seconds` of this run, `working` of them with at
    least one model loaded; the counts are of the whole queue."""
    jobs = queue.jobs()
    counts = queue.counts()
    timings: dict[str, list[float]] = {}
    for job in jobs:
        for stage, value in ((job.result or {}).get("timings") or {}).items():
            timings.setdefault(stage, []).append(value)
    return {
        "jobs": len(jobs),
        "states": {str(state): counts.get(state, 0) for state in State if counts.get(state)},
        "run": {
            "seconds": round(seconds, 3),
            "made": made,
            "working_seconds": round(working, 3),
            "videos_per_hour": _rate(made, working),
            "videos_per_hour_with_loading": _rate(made, seconds),
        },
        "stages": {
            stage: {"median": round(statistics.median(v), 4), "p95": round(_percentile(v, 0.95), 4), "n": len(v)}
            for stage, v in timings.items()
        },
        "warnings": dict(Counter(text for job in jobs for text in (job.result or {}).get("warnings", ()))),
        "not_done": [
            {"id": job.id, "line": job.line, "state": str(job.state), "reason": job.reason}
            for job in jobs
            if job.state is not State.DONE
        ],
    }


def write_reports(queue: JobQueue, folder: Path, summary: dict[str, Any]) -> None:
    """Write the three files, replacing those of an earlier run of this queue."""
    jobs = queue.jobs()
    replace_file(folder / "summary.json", json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    table = io.StringIO()
    writer = csv.DictWriter(table, COLUMNS)
    writer.writeheader()
    writer.writerows(row(job) for job in jobs)
    replace_file(folder / "jobs.csv", table.getvalue())
    replace_file(folder / "index.html", page(jobs, summary))


def row(job: Job) -> dict[str, Any]:
    """One line of jobs.csv. What a user wrote must not become a formula in a spreadsheet."""
    request = GenerationRequest.model_validate_json(job.request)
    prompt = request.prompt_text
    return {
        "number": job.number,
        "line": job.line,
        "id": job.id,
        "name": job.name,
        "state": str(job.state),
        "attempts": job.attempts,
        "seconds": ((job.result or {}).get("timings") or {}).get("total"),
        "reason": job.reason,
        "seed": request.seed,
        "prompt": f"'{prompt}" if prompt[:1] in "=+-@\t\r" else prompt,
        "file": f"{job.name}.mp4" if job.state is State.DONE else "",
    }


def page(jobs: list[Job], summary: dict[str, Any]) -> str:
    """A page without scripts; clips load when they are played."""
    cards = []
    for job in jobs:
        request = GenerationRequest.model_validate_json(job.request)
        text = f"<p>{html.escape(request.prompt_text[:500])}</p><small>{html.escape(job.name)} · seed {request.seed}"
        if job.state is State.DONE:
            name = html.escape(job.name, quote=True)
            cards.append(
                f'<figure><video src="{name}.mp4" controls loop muted preload="metadata"></video>{text} · '
                f'<a href="{name}.json">sidecar</a></small></figure>'
            )
        else:
            reason = html.escape(job.reason or "")
            cards.append(f'<figure class="open"><b>{job.state}</b> {reason}{text}</small></figure>')
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    states = ", ".join(f"{count} {state}" for state, count in summary["states"].items())
    rate = summary["run"]["videos_per_hour"]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        "<title>videoinfer batch</title><style>:root{color-scheme:light dark}body{font:15px system-ui;margin:1.5rem}"
        "main{display:grid;gap:1rem;grid-template-columns:repeat(auto-fill,minmax(260px,1fr))}"
        "figure{margin:0}video{width:100%}p{margin:.3rem 0}.open{border:1px dashed;padding:.5rem}</style>"
        f"<h1>{len(jobs)} clips</h1><p>{states} · {rate or 0:g} videos/h in the last run · {when}</p>"
        f"<main>{''.join(cards)}</main></html>\n"
    )


def replace_file(path: Path, text: str) -> None:
    """Write a file of our own anew: readers see the old one or the new one, whole."""
    descriptor, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(part, 0o644)
        os.replace(part, path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def _rate(made: int, seconds: float) -> float | None:
    return round(made / seconds * 3600.0, 3) if seconds > 0 else None


def _percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]
