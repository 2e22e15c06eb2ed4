"""Jobs as values: one that is to be added, and one as it stands in the journal."""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .states import State


@dataclass(frozen=True)
class NewJob:
    """A job to add. `content` decides the clip, `name` its file, `part` what a worker keeps loaded for it."""

    id: str
    line: int | None
    request: str
    content: str
    conditioning: str
    name: str
    part: str
    cost: float
    priority: int = 0


@dataclass(frozen=True)
class Job:
    """A row of the journal."""

    id: str
    number: int
    line: int | None
    request: str
    content: str
    conditioning: str
    name: str
    part: str
    cost: float
    state: State
    priority: int
    attempts: int
    offload: bool
    reason: str | None
    runner: str | None
    instance: int | None
    beat: float | None
    step: int | None
    steps: int | None
    step_seconds: float | None
    added: float
    started: float | None
    finished: float | None
    result: dict[str, Any] | None


def as_job(row: sqlite3.Row) -> Job:
    data = dict(row)
    data["state"] = State(data["state"])
    data["offload"] = bool(data["offload"])
    data["result"] = json.loads(data["result"]) if data["result"] else None
    return Job(**data)


def marks(values: Sequence[object]) -> str:
    """As many question marks as there are values, for an SQL list."""
    return ", ".join("?" * len(values))
