"""How every output file reaches its name: written beside it as a part file, synced, then linked, never over another."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import DiskFull, MediaError, NameTaken

PART = ".videoinfer.part"
REMEDIES = {
    errno.ENOSPC: "the disk is full: free some space or choose another folder",
    errno.EDQUOT: "your disk quota is used up: free some space or choose another folder",
    errno.EFBIG: "the file grew over the size limit of this process or file system",
    errno.EACCES: "no permission: choose a folder that you may write to",
    errno.EPERM: "no permission: choose a folder that you may write to",
    errno.EROFS: "the file system is read-only: choose another folder",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.ENAMETOOLONG: "the name is too long for this file system: choose a shorter one",
}


def write_error(path: Path, error: OSError) -> MediaError:
    """The user's words for an `OSError` met while writing `path`."""
    reason = REMEDIES.get(error.errno or 0, error.strerror or str(error))
    kind = DiskFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else MediaError
    return kind(f"cannot write {path}: {reason}")


def part_of(path: Path) -> Path:
    """What `path` is called while it is written. Nobody else names files so: what a killed process left is removed."""
    return path.with_name(path.name + PART)


def refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise NameTaken(f"{path} already exists, and nothing is overwritten: choose another name or remove it first")


@contextmanager
def published(path: Path) -> Iterator[Path]:
    """Yields the part file to write; publishes it as `path` when the body ends without an exception.

    The folder is made when it is missing. It is removed in every outcome, also after KeyboardInterrupt.
    Raises MediaError when `path` exists (before the body, and again when it appeared meanwhile) or cannot be written.
    """
    refuse_existing(path)
    part = part_of(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _claimed(part):
            try:
                yield part
                _sync(part)
                _link(part, path)
            finally:
                part.unlink(missing_ok=True)
        _sync(path.parent)
    except OSError as error:
        raise write_error(path, error) from error


@contextmanager
def _claimed(part: Path) -> Iterator[None]:
    """Creates `part` and holds a lock on it, so that two processes never write into one file.

    Opened before the body so that a folder without write permission is met before anything expensive runs. A part file
    that a killed process left behind holds no lock and is taken over.
    """
    descriptor = os.open(part, os.O_CREAT | os.O_RDWR, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise NameTaken(f"{part} is being written by another process: choose another name") from error
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL):
                raise  # those four: a file system without locks, where the names alone must keep writers apart
        os.ftruncate(descriptor, 0)
        yield
    finally:
        os.close(descriptor)


def _link(part: Path, path: Path) -> None:
    try:
        os.link(part, path)  # atomic, and fails where a rename would overwrite
    except FileExistsError:
        refuse_existing(path)
        raise
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise
        # A file system without hard links (exFAT, some network mounts): claim the name, then move over the claim.
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            refuse_existing(path)
            raise
        os.replace(part, path)


def _sync(path: Path) -> None:
    """fsync of a file, or of a folder so that a new name in it survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # folders of some network file systems cannot be synced
            raise
    finally:
        os.close(descriptor)
