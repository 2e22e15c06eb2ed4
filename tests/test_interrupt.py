"""Ctrl-C from the first import on: always exit code 130, and never a traceback."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from videoinfer.apps import cli
from videoinfer.apps import generate as command
from videoinfer.apps.interrupt import interruptible, leaving_on_interrupt, stop_on_interrupt

WORDS = "interrupted; no half-written file was left"


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(autouse=True)
def default_handler():
    """Also where the tests run in the background, and Ctrl-C is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Left(BaseException):
    """Stands in for the end of the process."""


@pytest.fixture
def leaves(monkeypatch):
    def leave(code: int) -> None:
        raise Left(code)

    monkeypatch.setattr(os, "_exit", leave)


def interrupted_at(module: str, folder: Path, *arguments: str) -> tuple[int, str, list[str]]:
    """Run a command and press Ctrl-C when it has imported `module`: exit code, stdout, and what stderr says."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-X", "importtime", "-m", "videoinfer.apps.cli", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("import time:") and line.rsplit("|", 1)[-1].strip() == module:
            process.send_signal(signal.SIGINT)
            break
    out, error = process.communicate()
    return process.returncode, out, [line for line in error.splitlines() if not line.startswith("import time:")]


# While typer, numpy, torch and the engine are imported, in C and in Python.
@pytest.mark.parametrize("module", ["typer.core", "numpy._core.multiarray", "torch._C", "videoinfer.model"])
def test_while_a_command_starts(tmp_path, module):
    code, out, told = interrupted_at(module, tmp_path, "generate", "a red circle", "-o", "out")
    assert (code, out, told[-1]) == (130, "", f"error: {WORDS}")
    assert not any("Traceback" in line or "Error" in line for line in told)
    assert not list((tmp_path / "out").glob("*"))


def test_while_a_batch_starts_with_json(tmp_path):
    (tmp_path / "jobs.jsonl").write_text('{"prompt": "a red circle"}\n')
    code, out, told = interrupted_at("torch._C", tmp_path, "batch", "jobs.jsonl", "-o", "out", "--json")
    assert (code, json.loads(out), told) == (130, {"error": {"kind": "interrupted", "message": WORDS}}, [])


def test_before_work_has_begun_the_process_ends_at_once(leaves, capfd):
    with leaving_on_interrupt("interrupted", 2):
        with pytest.raises(Left, match="130"):
            press()
        assert capfd.readouterr().err == "interrupted\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("stage", ["", "load"])
def test_a_command_that_only_loads_still_leaves(leaves, stage):
    with leaving_on_interrupt("interrupted", 2), interruptible(print) as interrupt:
        interrupt.stage = stage
        with pytest.raises(Left):
            press()


@pytest.mark.parametrize("stage", ["encode", "decode"])
def test_what_was_begun_is_ended_by_an_exception(stage):
    with leaving_on_interrupt("interrupted", 2):
        with pytest.raises(KeyboardInterrupt), interruptible(print) as interrupt:
            interrupt.stage = stage
            press()
        with pytest.raises(KeyboardInterrupt):  # also when the command is over: it may have left something to end
            press()


def test_a_batch_that_is_over_does_not_leave_either():
    told = []
    with leaving_on_interrupt("interrupted", 2):
        with stop_on_interrupt(told.append, print):
            press()
        assert told == ["interrupted"]
        with pytest.raises(KeyboardInterrupt):
            press()


def test_an_error_that_an_interrupt_was_turned_into_is_an_interrupt():
    with pytest.raises(KeyboardInterrupt), interruptible(print) as interrupt:
        interrupt.stage = "encode"
        try:
            press()
        except KeyboardInterrupt:
            raise ImportError("numpy could not be imported") from None
    with pytest.raises(ImportError), interruptible(print):
        raise ImportError("not installed")


def test_callers_in_a_process_of_their_own_are_not_ended_and_keep_their_handler(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "open_engine", lambda *_, **__: press())
    assert cli.main(["generate", "x"]) == 130
    assert WORDS in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_somebody_else_stays(monkeypatch, capsys):
    pressed = []
    monkeypatch.setattr(sys, "argv", ["videoinfer", "--version"])
    before = signal.signal(signal.SIGINT, lambda *_: pressed.append(1))
    try:
        with leaving_on_interrupt("interrupted", 2):
            press()
        assert pressed == [1] and cli.main() == 0
    finally:
        signal.signal(signal.SIGINT, before)
