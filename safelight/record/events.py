"""What a record holds in addition to readings: events, findings and pictures."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event (`name` is its kind) or a finding (`name` is its code)."""

    step: int
    time: float
    name: str
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RecordedPicture:
    """An image of the run; its step counts completed steps."""

    step: int
    kind: str
    path: Path  # from the run folder
    width: int
    height: int


def read_notes(
    database: sqlite3.Connection, table: str, column: str, name: str | None, most: int | None = None
) -> list[RecordedEvent]:
    """All of a table, or those of one name, as they came; the newest if there are more than `most`."""
    query = f"SELECT step, time, {column}, facts FROM {table} WHERE ? IN ({column}, '') ORDER BY id DESC LIMIT ?"
    rows = database.execute(query, (name or "", -1 if most is None else most)).fetchall()
    return [RecordedEvent(step, seconds, called, json.loads(facts)) for step, seconds, called, facts in reversed(rows)]


def read_pictures(database: sqlite3.Connection, kind: str | None, most: int | None = None) -> list[RecordedPicture]:
    """In the order of their steps."""
    query = (
        "SELECT step, kind, path, width, height FROM picture WHERE ? IN (kind, '') ORDER BY step, kind, path LIMIT ?"
    )
    rows = database.execute(query, (kind or "", -1 if most is None else most))
    return [RecordedPicture(step, name, Path(path), width, height) for step, name, path, width, height in rows]
