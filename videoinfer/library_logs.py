"""diffusers and transformers log what should have been an error. These contexts listen to it, and keep quiet."""

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

LIBRARIES = ("diffusers", "transformers")
# diffusers: a component that did not load; weights that stayed random or were left over. transformers: the same as a
# table. `lm_head` is exempt: a conditioner is read before its head, and may come without one.
_FAILED = "Failed to create component"
_NOT_AS_STORED = re.compile(r"newly initialized|were not used when initializing")
_TABLE_ROW = re.compile(r"^\s*(?P<key>\S+)\s*\|.*\b(MISSING|MISMATCH|CONVERSION)\b", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class _Collector(logging.Handler):
    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__(logging.WARNING)
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)


@contextmanager
def collected_problems() -> Iterator[list[str]]:
    """Fills the list, when the block ends, with what the libraries logged about a component that is not as it should.

    Other warnings reach the loggers' own handlers as usual, after the block.
    """
    problems: list[str] = []
    records: list[logging.LogRecord] = []
    loggers = [logging.getLogger(name) for name in LIBRARIES]
    states = [(logger.handlers, logger.level, logger.propagate) for logger in loggers]
    try:
        for logger in loggers:
            # A user who set the verbosity to "error" must still get an error for weights that are missing.
            logger.handlers, logger.propagate = [_Collector(records)], False
            logger.setLevel(min(logger.getEffectiveLevel(), logging.WARNING))
        yield problems
    finally:
        for logger, (handlers, level, propagate) in zip(loggers, states, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)
        for record in records:
            if problem := _problem(_COLOUR.sub("", record.getMessage()).strip()):
                problems.append(problem)
            elif (origin := logging.getLogger(record.name)).isEnabledFor(record.levelno):
                origin.handle(record)


def _problem(text: str) -> str | None:
    """The line of a library's message that says what is wrong with a component; None when nothing is."""
    if "LOAD REPORT" in text:
        rows = [row["key"] for row in _TABLE_ROW.finditer(text) if not row["key"].endswith("lm_head.weight")]
        return f"missing or mismatched weights: {', '.join(rows)}" if rows else None
    if _FAILED in text:
        return text.splitlines()[-1]  # the exception at the end of its traceback
    return text.splitlines()[0] if _NOT_AS_STORED.search(text) else None


@contextmanager
def quiet_block_errors() -> Iterator[None]:
    """Drops diffusers' own report of an exception inside a block (a traceback for each level) from this thread.

    The exception itself comes out of the pipeline all the same, and a cancelled run is no error to print.
    """
    thread = threading.get_ident()
    logger = logging.getLogger("diffusers.modular_pipelines.modular_pipeline")

    def other(record: logging.LogRecord) -> bool:
        return record.thread != thread or "Error in block" not in record.getMessage()

    logger.addFilter(other)
    try:
        yield
    finally:
        logger.removeFilter(other)
