"""Tables that only look like ours are found."""

from __future__ import annotations

import sqlite3

import pytest

from safelight.record.schema import SCHEMA, foreign_table

EVENT = "id INTEGER PRIMARY KEY, step INTEGER NOT NULL, time REAL NOT NULL, kind TEXT NOT NULL, facts TEXT NOT NULL"


@pytest.mark.parametrize(
    ("statements", "foreign"),
    [
        ("", None),
        ("CREATE TABLE notes (text TEXT)", None),  # of another name: nobody reads it
        ("DROP TABLE finding", None),  # as in version 1
        (f"DROP TABLE event; CREATE TABLE event ({EVENT}) STRICT", None),
        (f"DROP TABLE event; CREATE TABLE event ({EVENT})", "event"),  # not strict: any kind in any column
        (f"DROP TABLE event; CREATE TABLE event ({EVENT}, more TEXT) STRICT", "event"),
        ("DROP TABLE picture; CREATE VIEW picture AS SELECT 1 AS kind", "picture"),
    ],
)
def test_a_table_that_is_not_ours_is_named(statements: str, foreign: str | None) -> None:
    database = sqlite3.connect(":memory:")
    database.executescript(SCHEMA)
    database.executescript(statements)
    assert foreign_table(database) == foreign
    database.close()
