"""Workers on this machine: one process for each instance of a plan, in a session of its own."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from ..jobs.protocol import Task
from .affinity import ask_for_death
from .worker import WorkerSetup

KILL_WAIT = 30.0  # seconds for the kernel to take a killed process away


class LocalProcess:
    """A started worker. Its output goes to `log`."""

    def __init__(self, setup: WorkerSetup, environment: Mapping[str, str], log: Path) -> None:
        ours, theirs = socket.socketpair()
        with theirs, log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "videoinfer.placement.worker", str(theirs.fileno())],
                env={**os.environ, **environment},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # a Ctrl-C at the terminal does not reach it
                preexec_fn=ask_for_death,
            )
        self.connection = Connection(ours.detach())
        with contextlib.suppress(OSError):
            self.connection.send(setup)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exitcode(self) -> int | None:
        return self._process.poll()

    def send(self, task: Task) -> None:
        self.connection.send(task)

    def cancel(self, job: str) -> None:
        with contextlib.suppress(OSError):
            self.connection.send(Task("cancel", job))

    def kill(self) -> None:
        """SIGKILL, which also ends a stopped process; its code stays what it was when it had ended before."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.2 if self._ended() else 0.0)
        if self._process.poll() is None:
            self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILL_WAIT)
        self.connection.close()

    def _ended(self) -> bool:
        """Whether the worker has closed its side, and so is on its way out."""
        try:
            return self.connection.poll() and not self.connection.closed
        except (OSError, EOFError):
            return True


class LocalLauncher:
    """Starts the workers of a plan. `setups` has one entry for each instance, `delays` its seconds of waiting."""

    def __init__(
        self,
        setups: Sequence[WorkerSetup],
        environments: Sequence[Mapping[str, str]],
        delays: Sequence[float],
        logs: Path,
    ) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self._setups, self._environments, self._delays, self._logs = setups, environments, delays, logs

    @property
    def instances(self) -> int:
        return len(self._setups)

    def start_after(self, instance: int) -> float:
        return self._delays[instance]

    def launch(self, instance: int) -> LocalProcess:
        setup = replace(self._setups[instance], parent=os.getpid())
        return LocalProcess(setup, self._environments[instance], self._logs / f"worker-{instance}.log")
