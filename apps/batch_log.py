"""The runner's log: one JSON object a line, rotated."""

import json
import logging
import time
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

BYTES, FILES = 10_000_000, 5


class EventLog:
    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._handler = RotatingFileHandler(path, maxBytes=BYTES, backupCount=FILES, encoding="utf-8")

    def write(self, event: str, job: Any, text: str) -> None:
        data = {"time": round(time.time(), 3), "event": event, "job": job.id if job else None, "text": text}
        line = json.dumps(data, ensure_ascii=False)
        self._handler.emit(logging.LogRecord("batch", logging.INFO, "", 0, line, None, None))

    def close(self) -> None:
        self._handler.close()
