"""Checks of the output place, before minutes of work depend on it."""

import os
import shutil
import tempfile
from pathlib import Path

from ..errors import RequestError
from ..regular_file import expanded
from ..request import Output
from .media_kind import SUFFIXES

MIB = 2**20
NEEDED = 64 * MIB
NEEDED_WITH_FRAMES = 1024 * MIB


def output_place(text: str) -> dict[str, Path]:
    """What `-o` means: a file when it ends in .mp4 (and is no folder), else a folder. Keys of `Output`."""
    if not text.strip() or "\0" in text:
        raise RequestError(f"the output {text!r} is no file or folder name.")
    path = expanded(text)
    suffix = path.suffix.lower()
    if path.is_dir() or suffix != ".mp4":
        if suffix in SUFFIXES and not path.is_dir():
            raise RequestError(f"the output {path} cannot be written as {suffix}: clips are mp4. Name it .mp4.")
        return {"folder": path}
    return {"folder": path.parent, "path": path}


def check_output(output: Output) -> None:
    """Makes sure that a clip can be written to the output folder, which need not be there yet.

    Raises RequestError: the named file exists, the folder cannot be made or written, or the disk is full.
    """
    if output.path is not None and (output.path.exists() or output.path.is_symlink()):
        raise RequestError(f"{output.path} exists already and is not overwritten. Give another name, or a folder.")
    folder = output.folder if output.path is None else output.path.parent
    if folder.exists() and not folder.is_dir():
        raise RequestError(f"the output folder {folder} is a file. Give a folder, or a file name that ends in .mp4.")
    there = folder.absolute()
    try:
        while not os.path.lexists(there):
            there = there.parent
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise RequestError(
            f"the output folder {folder} cannot be written: {error.strerror}. Give another -o."
        ) from error
    needed = NEEDED_WITH_FRAMES if output.frames else NEEDED
    free = shutil.disk_usage(there).free
    if free < needed:
        raise RequestError(
            f"the output folder {folder} has {free // MIB} MiB free; {needed // MIB} MiB are needed. Free some space, "
            "or give another -o."
        )
