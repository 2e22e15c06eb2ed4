"""What was measured of a model beforehand, for step caches that need it: the file of `videoinfer cache calibrate`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import RequestError

NAME = "cache_calibration.json"  # in a model's folder


@dataclass(frozen=True)
class Calibration:
    """The entries of one file: objects with `workflow`, `steps`, and some of `magcache` (a ratio per step), `teacache`
    (a polynomial) and `static` (the best steps by their number)."""

    path: Path
    model: str
    entries: tuple[dict[str, Any], ...]

    @classmethod
    def read(cls, path: Path, model: str, must_exist: bool) -> "Calibration":
        """RequestError when it is no calibration file, or is not there although it must be."""
        if not path.exists() and not must_exist:
            return cls(path, model, ())
        try:
            entries = json.loads(path.read_text(encoding="utf-8"))["entries"]
            if all({"workflow", "steps"} <= entry.keys() for entry in entries):
                return cls(path, model, tuple(entries))
        except OSError as error:
            raise RequestError(f"the calibration file {path} cannot be read: {error.strerror}.") from error
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
        raise RequestError(f"{path} is no calibration file: make one with `videoinfer cache calibrate`.")

    def entry(self, workflow: str, steps: int, sigmas: Sequence[float] | None = None) -> dict[str, Any] | None:
        """The entry for runs of this kind, if there is one; with `sigmas` only one that was measured on them."""
        for entry in reversed(self.entries):
            if (entry["workflow"], entry["steps"]) != (workflow, steps):
                continue
            measured = entry.get("sigmas")
            if sigmas is None or measured is None or _close(measured, sigmas):
                return entry
        return None

    def missing(self, workflow: str, steps: int) -> str:
        """What to tell a user whose method needs an entry that is not there."""
        return (
            f"it needs what was measured of this model for {workflow} with {steps} steps, and {self.path} holds no "
            f"entry for that. Run `videoinfer cache calibrate --model {self.model} --workflow {workflow} "
            f"--steps {steps} -o FILE`, and give --calibration FILE."
        )


def _close(one: Sequence[float], other: Sequence[float]) -> bool:
    return len(one) == len(other) and all(abs(a - b) < 1e-5 for a, b in zip(one, other, strict=True))
