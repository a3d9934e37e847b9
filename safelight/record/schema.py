"""The tables of record.sqlite, their version, and the grid of steps that rows lie on."""

from __future__ import annotations

from safelight.errors import RecordError

VERSION = 2
CELL = 64  # steps of a row of `reading`; no row crosses a multiple of it
BITS = 2  # a row of `rollup` covers 2**BITS of the level below; level 0 is `reading` itself
LEVELS = 12  # 64 * 4**12 is a thousand million steps

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
