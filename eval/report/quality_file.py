"""What was measured of clips, kept beside them for the next time."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..metrics.summary import ClipQuality
from .clips import Clip


@dataclass(frozen=True)
class Measured:
    """A clip that is made: its sidecar, its measures, and which attributes it shows rightly (None: not judged)."""

    clip: Clip
    sidecar: dict[str, Any]
    quality: ClipQuality
    right: dict[str, bool] | None


class QualityFile:
    """JSON lines, one for each clip. A line holds for the latents that it was measured on, those of the clip and those
    of the dense one; the last line of a clip counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: dict[str, dict[str, Any]] = {}
        for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            try:
                line = json.loads(text)
                self._lines[line["clip"]] = line
            except (ValueError, KeyError, TypeError):
                continue  # cut off by a crash: measured again

    def find(self, clip: Clip, sidecar: dict[str, Any], dense: dict[str, Any]) -> Measured | None:
        """What was measured of a clip with this sidecar against a dense one with that."""
        line = self._lines.get(clip.name)
        if line is None or (line["latents"], line["dense"]) != (sidecar["latents"], dense["latents"]):
            return None
        return Measured(clip, sidecar, line["quality"], line["right"])

    def add(self, measured: Measured, dense: dict[str, Any]) -> None:
        """Append a line. The measures must be finite: JSON knows no infinity."""
        line = {
            "clip": measured.clip.name,
            "latents": measured.sidecar["latents"],
            "dense": dense["latents"],
            "quality": measured.quality,
            "right": measured.right,
        }
        torn = self.path.exists() and self.path.stat().st_size > 0 and not self.path.read_bytes().endswith(b"\n")
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n" * torn + json.dumps(line, allow_nan=False) + "\n")
