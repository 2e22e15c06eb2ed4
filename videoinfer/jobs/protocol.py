"""What a runner and its workers say to each other: tasks one way, messages the other. Plain values, picklable."""

from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Protocol


@dataclass(frozen=True)
class Task:
    """One thing to do. `request` is JSON; `offload`: give up each stage's weights as soon as the stage is over.

    kind: "encode" (store the conditioning at `conditioning`), "make" (from the prompt, or from `conditioning` when
    given; the clip goes to `output`), "free" (give up the weights of the encoders), "stop".
    """

    kind: str
    job: str = ""
    request: str = ""
    output: str = ""
    conditioning: str | None = None
    offload: bool = False


@dataclass(frozen=True)
class Message:
    """What a worker says.

    kind: "ready" (loaded, waiting), "stage" (`stage` of `job` begins), "step" (`step` of `steps` took `seconds`),
    "denoised" (`job` is only decoded and written from here on: the worker takes another), "encoded", "done" (`data` is
    the result), "error" (`error` names the kind, `text` the reason), "beat" (`data` has `memory` in bytes).
    """

    kind: str
    job: str = ""
    stage: str = ""
    step: int = 0
    steps: int = 0
    seconds: float = 0.0
    error: str = ""
    text: str = ""
    data: dict[str, Any] = field(default_factory=dict)


class WorkerProcess(Protocol):
    """A process that works on tasks. `connection` becomes readable for a message, and at its end."""

    @property
    def connection(self) -> Connection: ...
    @property
    def exitcode(self) -> int | None: ...
    def send(self, task: Task) -> None: ...
    def cancel(self, job: str) -> None:
        """The job is to end at its next step."""
        ...

    def kill(self) -> None:
        """End it at once, whatever state it is in, and wait until it is gone."""
        ...


class Launcher(Protocol):
    """How a runner starts the worker of an instance; `start_after`: seconds behind the runner's start."""

    @property
    def instances(self) -> int: ...
    def start_after(self, instance: int) -> float: ...
    def launch(self, instance: int) -> WorkerProcess: ...
