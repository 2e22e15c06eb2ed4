"""Opening what a user named as a file, where it may be anything that has a name."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """`path` for reading, if it is a regular file. OSError otherwise; never waits for the other end of a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is a pipe, socket or device, not a regular file", str(path))
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def is_utf8(path: str | Path) -> bool:
    """Whether the name can be written as text, in JSON above all: Linux takes any bytes for a name."""
    return not any("\ud800" <= character <= "\udfff" for character in str(path))


def expanded(path: str | Path) -> Path:
    """`~` and `~user` at the front replaced; a name that only looks like one, such as `~x.png`, stays as it is."""
    return Path(os.path.expanduser(path))
