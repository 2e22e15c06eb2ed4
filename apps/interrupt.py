"""Ctrl-C while a clip is made: the first ends the run cleanly, the second at once."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """The cancel event of one run, in the shape of `threading.Event` (`is_set`), and how many Ctrl-C there were."""

    def __init__(self) -> None:
        self.presses = 0
        self.stage = ""
        self._event = threading.Event()

    def is_set(self) -> bool:
        return self._event.is_set()

    def press(self) -> None:
        """Raises KeyboardInterrupt unless the denoise loop is running, which looks at the event after each step."""
        self.presses += 1
        self._event.set()
        if self.presses > 1 or self.stage != "denoise":
            raise KeyboardInterrupt


@contextmanager
def interruptible(told: Callable[[str], None]) -> Iterator[Interrupt]:
    """Sends Ctrl-C to an `Interrupt` for the length of the block. Signals reach the main thread only."""
    interrupt = Interrupt()

    def handle(_signal: int, _frame: FrameType | None) -> None:
        if interrupt.presses == 0 and interrupt.stage == "denoise":
            told("stopping after this step; Ctrl-C again stops at once")
        interrupt.press()

    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def stop_on_interrupt(stop: Callable[[str], None], told: Callable[[str], None]) -> Iterator[None]:
    """For a batch: the first Ctrl-C (or SIGTERM) calls `stop`, which lets jobs in hand finish; the second ends it."""
    presses = 0

    def handle(_signal: int, _frame: FrameType | None) -> None:
        nonlocal presses
        presses += 1
        if presses > 1:
            raise KeyboardInterrupt
        told("finishing the jobs in hand; Ctrl-C again stops at once, and they are made again next time")
        stop("interrupted")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
