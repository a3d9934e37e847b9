"""The tables of record.sqlite, their version, the grid of steps that rows lie on, and whether tables are ours."""

from __future__ import annotations

import functools
import sqlite3

from safelight.errors import RecordError

VERSION = 2
CHUNK_STEPS = 64  # steps of a row of `reading`; no row crosses a multiple of it
BITS = 2  # a row of `rollup` covers 2**BITS of the level below; level 0 is `reading` itself
LEVELS = 12  # 64 * 4**12 is a thousand million steps
NAMES = ("reading", "rollup", "event", "finding", "picture")
TABLES = {0: (), 1: ("reading", "event"), 2: NAMES}  # by version; 0: a file that was made just now
Shape = tuple[str, int, tuple[tuple, ...]]

SCHEMA = """
CREATE TABLE IF NOT EXISTS reading (
    signal TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    count INTEGER NOT NULL, nonfinite INTEGER NOT NULL,
    low REAL, high REAL, mean REAL, latest REAL,  -- of the finite numbers, or NULL
    steps BLOB, numbers BLOB NOT NULL,
    PRIMARY KEY (signal, first)) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rollup (
    signal TEXT NOT NULL, level INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    count INTEGER NOT NULL, nonfinite INTEGER NOT NULL,
    low REAL, high REAL, mean REAL, latest REAL,
    PRIMARY KEY (signal, level, first)) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS event (
    id INTEGER PRIMARY KEY, step INTEGER NOT NULL, time REAL NOT NULL, kind TEXT NOT NULL, facts TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS picture (
    kind TEXT NOT NULL, step INTEGER NOT NULL, path TEXT NOT NULL, width INTEGER NOT NULL, height INTEGER NOT NULL,
    PRIMARY KEY (kind, step, path)) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS finding (
    id INTEGER PRIMARY KEY, step INTEGER NOT NULL, time REAL NOT NULL, code TEXT NOT NULL, facts TEXT NOT NULL) STRICT;
"""


def newer(path: object, version: int) -> RecordError:
    return RecordError(
        f"{path} has version {version}, but this safelight knows versions up to {VERSION}. Use a newer safelight."
    )


def foreign_table(database: sqlite3.Connection) -> str | None:
    """The name of a table of ours that is a view, a virtual table, or has columns of other kinds: such a one could
    compute anything, without an end, or hold what no reader expects."""
    ours, found = _ours(), _shapes(database)
    return next((name for name in found if found[name] != ours[name]), None)


@functools.cache
def _ours() -> dict[str, Shape]:
    database = sqlite3.connect(":memory:")
    database.executescript(SCHEMA)
    found = _shapes(database)
    database.close()
    return found


def _shapes(database: sqlite3.Connection) -> dict[str, Shape]:
    """Kind, strictness and columns of the tables of these names."""
    found = dict[str, Shape]()
    for name in NAMES:
        for schema, _, kind, _, _, strict in database.execute(f"PRAGMA table_list({name})"):
            if schema == "main":
                columns = database.execute(f"PRAGMA main.table_xinfo({name})").fetchall()
                # Without defaults and places in a key: they decide nothing for a reader.
                found[name] = kind, strict, tuple((*column[1:4], column[6]) for column in columns)
    return found
