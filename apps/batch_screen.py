"""What a person sees of a batch: one live screen on a terminal, plain lines elsewhere."""

import time
from collections import deque
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from ..jobs.queue import Job, JobQueue
from ..jobs.states import ACTIVE, State

RECENT = 3600.0  # seconds that "now" looks back
EVENTS = 6
PLAIN_EVERY = 60.0  # seconds between status lines without a terminal
QUIET_EVENTS = {"encoded"}
FLAGS = {"paused": "paused", "holding": "waiting for disk space", "stopping": "finishing what is in hand"}


class Screen:
    """`event` and `beat` are the runner's; `made` counts the clips of this run."""

    def __init__(self, console: Console, queue: JobQueue, quiet: bool) -> None:
        self.console, self.queue, self.quiet = console, queue, quiet
        self.made = 0
        self._began = self._said = time.monotonic()
        self._done_at: deque[float] = deque()
        self._events: deque[str] = deque(maxlen=EVENTS)
        self._live: Live | None = None

    def __enter__(self) -> "Screen":
        if self.console.is_terminal and not self.quiet:
            self._live = Live(console=self.console, refresh_per_second=2, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def event(self, event: str, job: Job | None, text: str) -> None:
        if event == "done":
            self.made += 1
            self._done_at.append(time.monotonic())
        if event not in QUIET_EVENTS:
            self.note(" ".join(part for part in (event, job.name if job else "", text) if part))

    def note(self, text: str) -> None:
        if self.quiet:
            return
        if self._live is not None:
            self._events.append(text)
        else:
            self.console.print(f"{time.strftime('%H:%M:%S')} {text}", highlight=False, markup=False, soft_wrap=True)

    def beat(self, runner: Any) -> None:
        """Once a second: the screen, or now and then a line."""
        now = time.monotonic()
        while self._done_at and now - self._done_at[0] > RECENT:
            self._done_at.popleft()
        if self._live is not None:
            self._live.update(self._screen(runner))
        elif not self.quiet and now - self._said >= PLAIN_EVERY:
            self._said = now
            self.note(self.status(runner))

    def status(self, runner: Any) -> str:
        """`12/120 done, 1 failed, 21.9 videos/h now, 20.4 overall, ETA 4 h 56 m`"""
        counts = self.queue.counts()
        total = sum(counts.values())
        failed = counts.get(State.FAILED, 0) + counts.get(State.SET_ASIDE, 0)
        elapsed = time.monotonic() - self._began
        window = min(elapsed, RECENT)
        parts = [f"{counts.get(State.DONE, 0)}/{total} done", f"{failed} failed"]
        if self.made:
            parts.append(
                f"{len(self._done_at) / window * 3600:.1f} videos/h now, {self.made / elapsed * 3600:.1f} overall"
            )
            rest = self._remaining_cost()
            per_cost = runner.done_seconds / runner.done_cost if runner.done_cost else 0.0
            hands = max(1, sum(1 for seat in runner.seats if not seat.retired))
            if rest and per_cost:
                parts.append(f"ETA {duration(rest * per_cost / hands)}")
        parts += [words for flag, words in FLAGS.items() if getattr(runner, flag)]
        return ", ".join(parts)

    def _remaining_cost(self) -> float:
        with self.queue.journal.reading() as db:
            states = (State.QUEUED, State.ENCODED, *ACTIVE)
            marks = ", ".join("?" * len(states))
            return db.execute(f"SELECT COALESCE(SUM(cost), 0) FROM jobs WHERE state IN ({marks})", states).fetchone()[0]

    def _screen(self, runner: Any) -> Group:
        counts = self.queue.counts()
        bar = ProgressBar(total=max(1, sum(counts.values())), completed=counts.get(State.DONE, 0))
        return Group(
            self.status(runner),
            bar,
            instance_table([seat.describe() for seat in runner.seats]),
            *map(escape, self._events),
        )

    def final(self, summary: dict[str, Any], folder: Path) -> None:
        """The last line of a batch."""
        if self.quiet:
            return
        for text, count in summary["warnings"].items():
            self.console.print(f"warning: {text} ({count} clips)", highlight=False, markup=False, soft_wrap=True)
        self.console.print(last_line(summary, folder), highlight=False, markup=False, soft_wrap=True)


def last_line(summary: dict[str, Any], folder: Path) -> str:
    """`Queue completed: 118/120 in 5 h 23 m, 21.9 videos/h, 2 failed (see DIR/summary.json)`"""
    states = summary["states"]
    done, total = states.get("done", 0), summary["jobs"]
    failed = sum(states.get(name, 0) for name in ("failed", "set_aside"))
    open_ = total - done - failed - states.get("cancelled", 0)
    word = "completed" if not open_ else "stopped"
    rate = summary["run"]["videos_per_hour"] or 0.0
    line = f"Queue {word}: {done}/{total} in {duration(summary['run']['seconds'])}, {rate:.1f} videos/h"
    line += f", {failed} failed" if failed else ""
    line += f", {open_} left: the same command goes on with them" if open_ else ""
    return line + f" (see {folder / 'summary.json'})"


def instance_table(instances: list[dict[str, Any]]) -> Table:
    table = Table("instance", "job", "stage", "step", "s/step", "memory", box=None, pad_edge=False)
    for seat in instances:
        memory = f"{seat['memory'] / 1e9:.1f} GB" if seat["memory"] else ""
        for hand in seat["jobs"] or [None]:
            if hand is None:
                table.add_row(str(seat["instance"]), "", seat["state"], "", "", memory)
                continue
            step = f"{hand['step']}/{hand['steps']}" if hand["steps"] else ""
            speed = f"{hand['step_seconds']:.3g}" if hand["step_seconds"] else ""
            table.add_row(str(seat["instance"]), escape(hand["job"]), hand["stage"], step, speed, memory)
            memory = ""
    return table


def duration(seconds: float) -> str:
    """`42 s`, `7 m 5 s`, `5 h 23 m`"""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} m {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} m"
