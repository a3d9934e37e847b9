"""Whether the tables of a record are ours: those of an untrusted record may only look like them."""

from __future__ import annotations

import functools
import sqlite3

from safelight.record.schema import SCHEMA

Shape = tuple[str, int, tuple[tuple, ...]]


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
    for name in ("reading", "rollup", "event", "finding", "picture"):
        for schema, _, kind, _, _, strict in database.execute(f"PRAGMA table_list({name})"):
            if schema == "main":
                columns = database.execute(f"PRAGMA main.table_xinfo({name})").fetchall()
                # Without defaults and places in a key: they decide nothing for a reader.
                found[name] = kind, strict, tuple((*column[1:4], column[6]) for column in columns)
    return found
