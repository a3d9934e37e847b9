"""Small records, written as a run writes them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from safelight.record.store import RecordWriter


def record(path: Path, from_step: int = 0, say=pytest.fail) -> RecordWriter:
    return RecordWriter(path, from_step=from_step, say=say)


def rows(path: Path, signal: str = "loss") -> list[tuple]:
    with sqlite3.connect(path) as database:
        columns = "first, last, count, nonfinite, low, high, mean, latest"
        found = database.execute(f"SELECT {columns} FROM reading WHERE signal = ? ORDER BY first", (signal,)).fetchall()
    database.close()
    return found


def write_steps(path: Path, steps: range, from_step: int | None = None, offset: float = 0.0) -> None:
    """Readings of a run that went through these steps."""
    kept = record(path, steps.start if from_step is None else from_step)
    for step in steps:
        kept.add(step, {"loss": step / 4 + offset, "lr": 0.5})
    kept.close()
