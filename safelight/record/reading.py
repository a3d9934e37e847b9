"""The record as a file that is read, also while a run writes it, after a kill, and on a disk that cannot be written."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from safelight.errors import RecordError
from safelight.files import DISK, Disk, status_of
from safelight.files.database import require_plain
from safelight.record.chunks import unpack
from safelight.words import in_bytes

MAX_VALUE_BYTES = 64 << 20  # bytes of one value that are ever read
MAX_COPIED_BYTES = 8 << 30  # bytes; what is a hole in the file would be written as zeros


def open_reader(path: Path) -> sqlite3.Connection:
    """Read only; a run continues to write meanwhile."""
    wal, disk = Path(f"{path}-wal"), Disk(path.parent)
    require_plain(path, disk)
    if _is_shared(Path(f"{path}-shm"), disk):  # SQLite would write its marks into a file that has other names too
        return _copied(path, wal) if wal.exists() else _connect(path, "immutable=1")
    try:
        return _connect(path, "mode=ro")
    except sqlite3.OperationalError:
        if not path.is_file():
            raise
    # SQLite wants a file for shared memory beside the record, and could not make one: the disk is read only.
    if not wal.exists() or not wal.stat().st_size:
        return _connect(path, "immutable=1")
    return _copied(path, wal)  # killed, then archived: the last second is in the other file


def _is_shared(path: Path, disk: Disk) -> bool:
    status = status_of(path, disk)
    return status is not None and status.st_nlink > 1


def _copied(path: Path, wal: Path) -> sqlite3.Connection:
    size = os.path.getsize(path) + os.path.getsize(wal)
    with tempfile.TemporaryDirectory() as folder:
        if size > min(MAX_COPIED_BYTES, (DISK.free(Path(folder)) or MAX_COPIED_BYTES) // 2):
            raise RecordError(
                f"{path} can be read only as a copy, and {in_bytes(size)} are too much for that: its -shm file has "
                "other names, or its folder cannot be written. Copy the run to a disk of your own."
            )
        for name in (path, wal):
            shutil.copy(name, folder)
        database = _connect(Path(folder) / path.name, "mode=ro")
        memory = sqlite3.connect(":memory:", isolation_level=None)
        database.backup(memory)
        database.close()
    return memory


def _connect(path: Path, how: str) -> sqlite3.Connection:
    database = sqlite3.connect(f"file:{quote(os.fsencode(path))}?{how}", uri=True, isolation_level=None, timeout=10)
    try:
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        database.execute("PRAGMA trusted_schema = OFF")  # an untrusted record may hold SQL of its own
        database.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()  # only now is the file read
    except BaseException:
        database.close()
        raise
    return database


def read_signal(path: Path, signal: str) -> list[tuple[int, float]]:
    """All readings of one signal, in order, as (step, number)."""
    query = "SELECT first, last, steps, numbers FROM reading WHERE signal = ? ORDER BY first"
    with closing(open_reader(path)) as database:
        parts = [unpack(*row) for row in database.execute(query, (signal,))]
    return [pair for steps, numbers in parts for pair in zip(steps.tolist(), numbers.tolist(), strict=True)]


def read_events(path: Path, kind: str | None = None) -> list[tuple[int, str, dict[str, Any]]]:
    """(step, kind, facts) of every event, or of one kind."""
    with closing(open_reader(path)) as database:
        rows = database.execute("SELECT step, kind, facts FROM event ORDER BY id").fetchall()
    return [(step, name, json.loads(facts)) for step, name, facts in rows if kind in (None, name)]
