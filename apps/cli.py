"""The command line: `videoinfer generate`, `batch`, `jobs`, `models`.

Exit codes: 0 ok, 1 failed, 2 bad usage, 130 Ctrl-C.

The commands are imported inside `main`, when it has taken Ctrl-C over.
"""

import contextlib
import json
import os
import sys
import traceback
from typing import Any, NoReturn

from ..errors import GenerationError, MediaError, ModelError, RequestError, VideoInferError
from .interrupt import INTERRUPTED, Stopped, leaving_on_interrupt

OK, FAILED, USAGE = 0, 1, 2
KINDS = {RequestError: "request", ModelError: "model", MediaError: "media", GenerationError: "generation"}
INTERRUPTION = ("interrupted", "interrupted; no half-written file was left")


def main(argv: list[str] | None = None) -> int:
    """The entry point. Returns the exit code; prints every error as one message, `--debug` adds the traceback.

    Without `argv` the process is the command's own, and Ctrl-C ends it at once until there is something to finish. With
    `argv` the caller goes on, and Ctrl-C is a code to return.
    """
    if argv is not None:
        return _run(argv)
    arguments = sys.argv[1:]
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started this
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    with leaving_on_interrupt(_words(arguments, *INTERRUPTION), 1 if "--json" in arguments else 2):
        return _run(arguments)


def _run(arguments: list[str]) -> int:
    try:
        return _command(arguments)
    except Stopped:
        return INTERRUPTED
    except KeyboardInterrupt:
        return _fail(arguments, INTERRUPTED, *INTERRUPTION)
    except VideoInferError as error:
        kind = next((kind for cls, kind in KINDS.items() if isinstance(error, cls)), "failed")
        return _fail(arguments, FAILED if isinstance(error, GenerationError) else USAGE, kind, str(error))
    except Exception as error:
        message = f"unexpected {type(error).__name__}: {error} (--debug shows where)"
        return _fail(arguments, FAILED, "internal", message)


def _command(arguments: list[str]) -> int:
    import typer
    from typer.exceptions import TyperException

    from .commands import app

    try:
        code = app(args=arguments, prog_name="videoinfer", standalone_mode=False)
    except TyperException as error:
        if "--json" not in arguments:
            _show_usage(error)
            return error.exit_code
        return _fail(arguments, error.exit_code, "usage", error.format_message())
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    if code == INTERRUPTED:  # typer turns KeyboardInterrupt into this code.
        raise KeyboardInterrupt
    return code if isinstance(code, int) else OK


def _show_usage(error: Any) -> None:
    show = getattr(error, "show", None)
    if show is not None:
        show()  # With the usage line and a hint at --help.
    else:
        print(f"error: {error.format_message()}", file=sys.stderr)


def _fail(arguments: list[str], code: int, kind: str, message: str) -> int:
    if "--debug" in arguments:
        traceback.print_exc()
    words = _words(arguments, kind, message)
    for stream in (sys.stdout, sys.stderr) if "--json" in arguments else (sys.stderr,):
        try:
            print(words, file=stream, flush=True)
            break
        except OSError:
            _silence(stream)
    return code


def _silence(stream: Any) -> None:
    """A stream that takes nothing any more must not fail again when the interpreter flushes it at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _words(arguments: list[str], kind: str, message: str) -> str:
    """An error as it is printed."""
    if "--json" in arguments:
        return json.dumps({"error": {"kind": kind, "message": message}})
    return f"error: {message}"


def run_as_script() -> NoReturn:
    """`python -m videoinfer.apps.cli`."""
    sys.exit(main())


if __name__ == "__main__":
    run_as_script()
