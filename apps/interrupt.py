"""Ctrl-C: what it means before work has begun, while a clip is made, and in a batch."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

INTERRUPTED = 130  # exit code
NOTHING_BEGUN = ("", "load")  # stages of which nothing is left when the process ends
SHOW_CURSOR = b"\x1b[?25h\n"


class Leave:
    """The handler for the time in which nothing has been begun that needs an end: `words`, and the process is over.

    KeyboardInterrupt would not do: numpy, torch and others turn it into an ImportError while they are imported.
    """

    def __init__(self, words: str, descriptor: int) -> None:
        self._words, self._descriptor = f"{words}\n".encode(), descriptor

    def __call__(self, number: int, frame: FrameType | None) -> NoReturn:
        signal.signal(number, signal.SIG_IGN)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # it may be in the middle of a print
                stream.flush()
        with contextlib.suppress(OSError):
            if os.isatty(2):
                os.write(2, SHOW_CURSOR)  # a progress bar may have hidden it
            os.write(self._descriptor, self._words)
        os._exit(INTERRUPTED)


@contextmanager
def leaving_on_interrupt(words: str, descriptor: int) -> Iterator[None]:
    """Ctrl-C writes `words` to the file `descriptor` and ends the process with 130, until a command handles it itself.

    Somebody else's handler stays, as does an ignored Ctrl-C.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, Leave(words, descriptor))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _after_work(before: Any) -> Any:
    """What follows a command's own handler: the one before it, but what was begun does not end by leaving at once."""
    return signal.default_int_handler if isinstance(before, Leave) else before


class Stopped(Exception):
    """The command ended by Ctrl-C in its own way, and has told all there is to tell."""


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
    """Sends Ctrl-C to an `Interrupt` for the length of the block. Signals reach the main thread only.

    An error that follows it is what others made of a KeyboardInterrupt, and becomes one again.
    """
    interrupt = Interrupt()
    before = signal.getsignal(signal.SIGINT)

    def handle(number: int, frame: FrameType | None) -> None:
        if isinstance(before, Leave) and interrupt.stage in NOTHING_BEGUN:
            before(number, frame)
        if interrupt.presses == 0 and interrupt.stage == "denoise":
            told("stopping after this step; Ctrl-C again stops at once")
        interrupt.press()

    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    signal.signal(signal.SIGINT, handle)
    terminated = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield interrupt
    except Exception as error:
        if interrupt.is_set():
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, _after_work(before))
        signal.signal(signal.SIGTERM, terminated)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM ends the process too, but what was begun is removed on the way."""
    raise SystemExit(128 + number)


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
            signal.signal(number, _after_work(handler))
