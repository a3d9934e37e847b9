"""The record as a file that is written: opened, brought up to date, and cut where a run is taken up again."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from safelight.errors import RecordError
from safelight.files import Disk
from safelight.files.database import prepare_for_writing, refuse_programs, require_plain
from safelight.record.chunk_writer import PLACEHOLDERS, ChunkWriter, width
from safelight.record.chunks import Chunk, pack, unpack
from safelight.record.schema import BITS, CHUNK_STEPS, LEVELS, SCHEMA, TABLES, VERSION, foreign_table, newer

SIGNALS = """
WITH RECURSIVE each(name) AS (
    SELECT min(signal) FROM reading
    UNION ALL SELECT (SELECT min(signal) FROM reading WHERE signal > name) FROM each WHERE name IS NOT NULL)
SELECT name FROM each WHERE name IS NOT NULL
"""  # jumps from name to name along the index: no need to look at every row
UPGRADED_AT_ONCE = 4096  # rows of an older version that are held in memory at once


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    with database:  # commits, or takes back
        database.execute("BEGIN IMMEDIATE")
        yield


def open_database(path: Path, say: Callable[[str], None] = lambda text: None) -> sqlite3.Connection:
    """For writing. What an older safelight wrote is upgraded, what a newer one wrote is refused, and so is what holds
    anything but our tables: checked before a byte is written."""
    prepare_for_writing(path, Disk(path.parent), say)
    database = sqlite3.connect(path, isolation_level=None, timeout=10)
    try:
        database.execute("PRAGMA trusted_schema = OFF")
        if (version := read_version(database)) > VERSION:
            raise newer(path, version)
        refuse_programs(database, path, TABLES.get(version, ()))
        if version == VERSION and (foreign := foreign_table(database)) is not None:
            raise RecordError(f"{path} has a table {foreign} that is not as Safelight makes it. It was not written to.")
        require_plain(path, Disk(path.parent))
        try:
            database.execute("PRAGMA journal_mode = WAL")  # readers and the writer never wait for each other
        except sqlite3.OperationalError:
            database.execute("PRAGMA journal_mode = TRUNCATE")  # no shared memory here, as on many network disks
        database.execute("PRAGMA synchronous = NORMAL")
        if version < VERSION:
            with transaction(database):  # a kill on the way leaves the old version as it was
                (upgrade if version == 1 else create)(database)
                database.execute(f"PRAGMA user_version = {VERSION}")
    except BaseException:
        database.close()
        raise
    return database


def read_version(database: sqlite3.Connection) -> int:
    return database.execute("PRAGMA user_version").fetchone()[0]


def create(database: sqlite3.Connection) -> None:
    for statement in filter(str.strip, SCHEMA.split(";")):
        database.execute(statement)


def upgrade(database: sqlite3.Connection) -> None:
    """Version 1 had rows of any length and no rollups: all readings are put into rows of 64 steps."""
    database.execute("ALTER TABLE reading RENAME TO old")
    create(database)
    chunks = ChunkWriter(database)
    rows = database.execute("SELECT signal, first, last, steps, numbers FROM old ORDER BY signal, first")
    for signal, *row in rows:
        steps, numbers = unpack(*row)
        chunks.put(steps, (signal,), numbers[:, None])
        if chunks.size >= UPGRADED_AT_ONCE:
            chunks.store()
            chunks.mark_stored()
    chunks.store()
    database.execute("DROP TABLE old")


def forget_from(database: sqlite3.Connection, step: int) -> None:
    """Drops everything at or after a step that is about to be trained again; the row it lies in is cut."""
    with transaction(database):
        for (signal,) in database.execute(SIGNALS).fetchall():
            _cut(database, signal, step)
            _open_rollups(database, signal)
        database.execute("DELETE FROM event WHERE step >= ?", (step,))
        database.execute("DELETE FROM finding WHERE step >= ?", (step,))
        # The step of a picture counts completed steps: it was drawn before the checkpoint of the same number.
        database.execute("DELETE FROM picture WHERE step > ?", (step,))


def _cut(database: sqlite3.Connection, signal: str, step: int) -> None:
    start = step // CHUNK_STEPS * CHUNK_STEPS
    query = "SELECT first, last, steps, numbers FROM reading WHERE signal = ? AND first BETWEEN ? AND ?"
    parts = [unpack(*row) for row in database.execute(query, (signal, start, step - 1))]
    database.execute("DELETE FROM reading WHERE signal = ? AND first >= ?", (signal, start))
    kept = [Chunk(signal, start // CHUNK_STEPS, [s[s < step]], [n[s < step]]) for s, n in parts]
    database.executemany(f"INSERT INTO reading VALUES ({PLACEHOLDERS})", pack(kept))


def _open_rollups(database: sqlite3.Connection, signal: str) -> None:
    """Spans that contain the newest reading are no longer complete: the writer may add to them."""
    query = "SELECT max(first) FROM reading WHERE signal = ?"
    newest = database.execute(query, (signal,)).fetchone()[0]
    chunk = -1 if newest is None else newest // CHUNK_STEPS
    for level in range(1, LEVELS + 1):
        start = (chunk >> BITS * level) * width(level)
        database.execute("DELETE FROM rollup WHERE signal = ? AND level = ? AND first >= ?", (signal, level, start))
