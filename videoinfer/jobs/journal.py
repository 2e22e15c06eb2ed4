"""The journal: one SQLite file that tells, after any crash, what is done and what is not."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import VideoInferError

# `user_version` counts the migrations that a file has seen; add a new one at the end, never change an old one.
MIGRATIONS = (
    """
    CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE jobs (
        id TEXT PRIMARY KEY,            -- of the request and the content of its references
        number INTEGER NOT NULL,        -- order in the queue
        line INTEGER,                   -- of the job file
        request TEXT NOT NULL,          -- JSON
        content TEXT NOT NULL,          -- sha256 over everything that decides the clip
        conditioning TEXT NOT NULL,     -- key of what the encoders make of it
        name TEXT NOT NULL UNIQUE,      -- of the clip, without .mp4
        part TEXT NOT NULL,             -- what a worker keeps loaded for it: partition and shape
        cost REAL NOT NULL,             -- in units of the cost model
        state TEXT NOT NULL,
        priority INTEGER NOT NULL DEFAULT 0,
        attempts INTEGER NOT NULL DEFAULT 0,
        offload INTEGER NOT NULL DEFAULT 0,
        reason TEXT,                    -- why it is failed, set aside or tried again
        runner TEXT,                    -- who holds it
        instance INTEGER,               -- which of its workers, kept after a failure to try another one
        beat REAL,                      -- unix time of the last sign of life under this lease
        step INTEGER, steps INTEGER, step_seconds REAL,
        added REAL NOT NULL, started REAL, finished REAL,
        result TEXT                     -- JSON: size and digest of the clip, digests of its latents, timings
    ) WITHOUT ROWID;
    CREATE INDEX jobs_by_state ON jobs (state, priority DESC, cost DESC, number);
    CREATE TABLE attempts (
        job TEXT NOT NULL, attempt INTEGER NOT NULL, runner TEXT NOT NULL, instance INTEGER NOT NULL,
        started REAL NOT NULL, ended REAL, outcome TEXT, reason TEXT,
        PRIMARY KEY (job, attempt)
    ) WITHOUT ROWID;
    CREATE TABLE runners (
        id TEXT PRIMARY KEY, pid INTEGER NOT NULL, started REAL NOT NULL, ended REAL, beat REAL NOT NULL,
        instances TEXT NOT NULL         -- JSON, one object per worker: what the screen of another process shows
    ) WITHOUT ROWID;
    """,
)

NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "lustre", "gpfs", "ceph", "glusterfs", "beegfs", "9p"}
NETWORK |= {"fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "afs", "orangefs", "wekafs"}


class JournalError(VideoInferError):
    """The journal cannot be used: on a network file system, of a newer version, damaged, or of another queue."""


class Journal:
    """A connection per thread to one journal file. `writing()` and `reading()` give transactions."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._local = threading.local()

    @property
    def _connection(self) -> sqlite3.Connection:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            # Autocommit: transactions are begun here and nowhere else.
            connection = sqlite3.connect(self.path, timeout=60.0, isolation_level=None)
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA journal_mode = WAL")
            self._local.connection = connection
        return connection

    @contextmanager
    def writing(self, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """One write transaction, durable when the block ends; rolled back by an exception.

        Not `durable`: a power cut may take it back (a crash of the process does not). That is enough for claims and
        beats, since what is in hand then is made again anyway, and it waits for no disk.
        """
        yield from self._transaction("BEGIN IMMEDIATE", "FULL" if durable else "NORMAL")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent view."""
        yield from self._transaction("BEGIN")

    def _transaction(self, begin: str, level: str = "FULL") -> Iterator[sqlite3.Connection]:
        try:
            connection = self._connection
            connection.execute(f"PRAGMA synchronous = {level}")
            connection.execute(begin)
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.DatabaseError as error:
            raise _explained(self.path, error) from error

    def close(self) -> None:
        """Close this thread's connection."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None


def open_journal(path: Path, *, create: bool = False) -> Journal:
    """Open, or with `create` make, a journal, and bring it to this version's form.

    Raises JournalError: none there, on a network file system, written by a newer version, or damaged.
    """
    if not create and not path.exists():
        raise JournalError(f"there is no journal {path}: name the output folder of a batch.")
    kind = file_system(path)
    if kind in NETWORK:
        raise JournalError(
            f"{path} is on a network file system ({kind}), where SQLite's locks do not hold: put the journal on a "
            "local disk with --journal PATH."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JournalError(f"the folder of the journal {path} cannot be made: {error.strerror}.") from error
    journal = Journal(path)
    with journal.writing() as db:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > len(MIGRATIONS):
            raise JournalError(
                f"{path} was written by a newer videoinfer (form {version}): update, or use a new folder."
            )
        for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
            for statement in filter(str.strip, script.split(";")):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {number}")
    return journal


def file_system(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """The type of the file system that `path` (which need not exist yet) lies on; "" where that cannot be told."""
    place = Path(os.path.realpath(path))
    best, kind = -1, ""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        left, _, right = line.partition(" - ")
        point = Path(left.split()[4].encode().decode("unicode_escape"))  # octal escapes for spaces
        if len(point.parts) >= best and place.is_relative_to(point):
            best, kind = len(point.parts), right.split()[0]
    return kind


def _explained(path: Path, error: sqlite3.DatabaseError) -> JournalError:
    text = str(error)
    if "malformed" in text or "not a database" in text:
        return JournalError(f"the journal {path} is damaged ({text}): move it away, and the batch starts a new one.")
    if "full" in text:
        return JournalError(f"the journal {path} cannot be written: the disk is full.")
    return JournalError(f"the journal {path} cannot be used: {text}.")
