"""A cap over all workers of a queue on how many of them write a clip at once: so many lock files."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

POLL = 0.05  # seconds


class Slots:
    """`count` slots in `folder`. A slot whose holder dies is free again: the kernel drops its lock."""

    def __init__(self, folder: Path, count: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._paths = [folder / f"{k}.lock" for k in range(max(1, count))]

    @contextmanager
    def one(self) -> Iterator[None]:
        """Hold one slot for the length of the block; waits until one is free."""
        while (descriptor := self._take()) is None:
            time.sleep(POLL)
        try:
            yield
        finally:
            os.close(descriptor)

    def _take(self) -> int | None:
        for path in self._paths:
            descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            except BlockingIOError:
                os.close(descriptor)
        return None
