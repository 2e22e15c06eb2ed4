"""A worker process: takes tasks from its runner, one at a time, and says how they go.

`python -P -m videoinfer.placement.worker FD` reads its `WorkerSetup` from the socket FD. Cores, NUMA node and threads
are set before torch is imported. Three threads: the main one works, one listens, one beats; with overlap a fourth
decodes and writes a clip while the main one denoises the next.
"""

import contextlib
import importlib
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Protocol

from ..jobs.protocol import Message, Task

BEAT = 2.0  # seconds


@dataclass(frozen=True)
class WorkerSetup:
    """What a worker is told at its start. `workload` is "module:class", made with `options`."""

    instance: int
    parent: int
    workload: str
    options: dict[str, Any] = field(default_factory=dict)
    cpus: tuple[int, ...] = ()
    numa_node: int | None = None
    threads: int = 1
    overlap: bool = True


class Workload(Protocol):
    """What the tasks mean. `make` returns what finishes the clip, and may run beside the next `make`."""

    def encode(self, task: Task) -> None: ...
    def make(
        self,
        task: Task,
        on_stage: Callable[[str], None],
        on_step: Callable[[int, int, float], None],
        cancel: threading.Event,
    ) -> Callable[[], dict[str, Any]]: ...
    def free(self) -> None: ...
    def error_kind(self, error: Exception) -> str: ...


class Worker:
    def __init__(self, connection: Connection, setup: WorkerSetup) -> None:
        self.connection, self.setup = connection, setup
        self._sending = threading.Lock()
        self._tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._cancels: dict[str, threading.Event] = {}
        self._finishing: threading.Thread | None = None

    def run(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._beat, daemon=True).start()
        module, name = self.setup.workload.split(":")
        try:
            self.workload: Workload = getattr(importlib.import_module(module), name)(**self.setup.options)
        except Exception as error:
            traceback.print_exc()
            self._send(Message("broken", text=str(error)))
            return
        self._send(Message("ready"))
        while (task := self._tasks.get()).kind != "stop":
            if task.kind == "free":
                self._join()  # a clip may still be decoded with what is to be given up
                self.workload.free()
            else:
                self._work(task)
        self._join()

    def _work(self, task: Task) -> None:
        cancel = self._cancels.setdefault(task.job, threading.Event())
        began = time.perf_counter()

        def on_stage(stage: str) -> None:
            self._send(Message("stage", task.job, stage=stage))

        def on_step(step: int, steps: int, _sigma: float) -> None:
            nonlocal began
            now = time.perf_counter()
            self._send(Message("step", task.job, step=step, steps=steps, seconds=now - began))
            began = now

        try:
            if task.kind == "encode":
                self.workload.encode(task)
                self._send(Message("encoded", task.job))
                self._cancels.pop(task.job, None)
                return
            finish = self.workload.make(task, on_stage, on_step, cancel)
        except Exception as error:
            self._report(task, error)
            return
        self._join()  # one clip at a time behind the one that is denoised
        if self.setup.overlap:
            self._send(Message("denoised", task.job))
            self._finishing = threading.Thread(target=self._finish, args=(task, finish))
            self._finishing.start()
        else:
            self._finish(task, finish)

    def _finish(self, task: Task, finish: Callable[[], dict[str, Any]]) -> None:
        try:
            result = finish()
        except Exception as error:
            self._report(task, error)
            return
        self._cancels.pop(task.job, None)
        self._send(Message("done", task.job, data={**result, "memory": resident_memory()}))

    def _report(self, task: Task, error: Exception) -> None:
        kind = self.workload.error_kind(error)
        if kind != "cancelled":
            traceback.print_exception(error)  # to the worker's log
        self._cancels.pop(task.job, None)
        self._send(Message("error", task.job, error=kind, text=str(error) or type(error).__name__))

    def _join(self) -> None:
        if self._finishing is not None:
            self._finishing.join()
            self._finishing = None

    def _listen(self) -> None:
        try:
            while True:
                task = self.connection.recv()
                if task.kind == "cancel":
                    self._cancels.setdefault(task.job, threading.Event()).set()
                else:
                    self._tasks.put(task)
        except (EOFError, OSError):
            os._exit(1)  # the runner is gone: whatever is in hand will be made again

    def _beat(self) -> None:
        while True:
            self._send(Message("beat", data={"memory": resident_memory()}))
            time.sleep(BEAT)

    def _send(self, message: Message) -> None:
        with self._sending, contextlib.suppress(OSError):
            self.connection.send(message)


def resident_memory() -> int:
    """Bytes of this process in memory."""
    import psutil

    return psutil.Process().memory_info().rss


def main(descriptor: int) -> None:
    from .affinity import bind, die_with_parent

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the runner, which lets jobs in hand finish
    connection = Connection(descriptor)
    setup: WorkerSetup = connection.recv()
    die_with_parent(setup.parent)
    for note in bind(setup.cpus, setup.numa_node, setup.threads):
        print(note, file=sys.stderr, flush=True)
    Worker(connection, setup).run()


if __name__ == "__main__":
    main(int(sys.argv[1]))
