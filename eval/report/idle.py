"""Whether a machine was left alone while something was timed on it."""

import os
import time
from dataclasses import dataclass

import psutil

BUSY = 0.25  # cores that others use, on average, from which on a timing is not trusted


@dataclass(frozen=True)
class Load:
    """`load_average`: of the minute before, this command's own work counts in it. `others`: cores that other processes
    used, on average, during the timing."""

    load_average: float
    others: float

    @property
    def idle(self) -> bool:
        return self.others <= BUSY

    def __str__(self) -> str:
        used = f"other processes used {self.others:.2f} cores on average while methods were timed"
        return f"{used} (load average before: {self.load_average:.2f})"


class LoadMeter:
    """Counts from its construction on."""

    def __init__(self) -> None:
        self.load_average = os.getloadavg()[0]
        self._began, self._all, self._own = time.monotonic(), _busy(), _own()

    def read(self) -> Load:
        seconds = max(time.monotonic() - self._began, 1e-9)
        others = (_busy() - self._all - (_own() - self._own)) / seconds
        return Load(round(self.load_average, 2), round(max(0.0, others), 3))


def _busy() -> float:
    """Seconds that all cores together have worked."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - _guests(times)


def _guests(times: object) -> float:
    """Time of guests is counted a second time, within that of users."""
    return getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)


def _own() -> float:
    return sum(psutil.Process().cpu_times()[:4])  # user and system, of this process and of children that have ended
