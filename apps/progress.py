"""What a person sees on stderr while a clip is made: a live bar on a terminal, plain lines elsewhere."""

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..errors import CacheWarning
from ..request import RequestAdjusted

TOLD = (RequestAdjusted, CacheWarning)  # warnings that the user is told in one line


class Report:
    """Stage, step i/n and remaining time. `quiet` (for --json and --quiet) keeps only notes."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self.console = console
        self.stage = ""
        self._quiet = quiet
        self._started = time.monotonic()
        self._tenth = 0
        self._bar: Progress | None = None
        self._task = None

    @contextmanager
    def running(self) -> Iterator["Report"]:
        """Shows progress for the length of the block; adjustments of the request and idle caches become notes."""
        with warnings.catch_warnings():
            for kind in TOLD:
                warnings.simplefilter("always", kind)
            shown = warnings.showwarning

            def show(message, category, *rest, **named) -> None:
                if issubclass(category, TOLD):
                    self.note(str(message))
                else:
                    shown(message, category, *rest, **named)

            warnings.showwarning = show
            if self.console.is_terminal and not self._quiet:
                columns = (TextColumn("{task.description:<8}"), BarColumn(), MofNCompleteColumn())
                self._bar = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=self.console)
                self._bar.start()
            try:
                yield self
            finally:
                if self._bar is not None:
                    self._bar.stop()

    def note(self, text: str) -> None:
        self.console.print(f"note: {escape(text)}", soft_wrap=True, highlight=False)

    def on_stage(self, stage: str, *_: object) -> None:
        self.stage, self._tenth, self._started = stage, 0, time.monotonic()
        if self._bar is not None:
            for task in self._bar.tasks:
                self._bar.update(task.id, total=task.total or 1, completed=task.total or 1)
                self._bar.stop_task(task.id)
            self._task = self._bar.add_task(stage, total=None)
        elif not self._quiet:
            self.console.print(stage, highlight=False)

    def on_step(self, step: int, total: int, sigma: float = 0.0, *_: object) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=step, total=total)
        elif not self._quiet and (step * 10 // total > self._tenth or step == 1):
            self._tenth = step * 10 // total
            left = (time.monotonic() - self._started) / step * (total - step)
            self.console.print(f"{self.stage} step {step}/{total}, {left:.0f} s left", highlight=False)
