"""The writer of record.sqlite: readings in windows of steps, events as JSON, on a thread of its own.

reading(signal, first, last, count, nonfinite, low, high, mean, latest, steps, numbers)
    one row per signal and window; `numbers` are float32, `steps` int64 or NULL where they are first..last
event(step, time, kind, facts)
"""

from __future__ import annotations

import json
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

VERSION = 1
WINDOW_STEPS, WINDOW_SECONDS = 64, 1.0
SCHEMA = """
CREATE TABLE IF NOT EXISTS reading (
    signal TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    count INTEGER NOT NULL, nonfinite INTEGER NOT NULL,
    low REAL, high REAL, mean REAL, latest REAL,  -- of the finite numbers; NULL where there is none
    steps BLOB, numbers BLOB NOT NULL,
    PRIMARY KEY (signal, first)) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS event (
    id INTEGER PRIMARY KEY, step INTEGER NOT NULL, time REAL NOT NULL, kind TEXT NOT NULL, facts TEXT NOT NULL) STRICT;
"""
Row = tuple[str, int, int, int, int, float | None, float | None, float | None, float | None, bytes | None, bytes]


class Record:
    """Collects readings and events; hands them to the file in batches. Never blocks or ends the training."""

    def __init__(self, path: Path, *, from_step: int, say: Callable[[str], None]) -> None:
        self._path, self._from_step, self._say = path, from_step, say
        self._buffer: dict[str, list[tuple[int, float]]] = {}
        self._flushed = time.monotonic()
        self._queue: queue.Queue[list[tuple[str, tuple[Any, ...]]] | None] = queue.Queue(maxsize=256)
        self._thread = threading.Thread(target=self._write_all, name="safelight-record", daemon=True)
        self._thread.start()

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        for signal, number in numbers.items():
            self._buffer.setdefault(signal, []).append((step, number))
        if step % WINDOW_STEPS == 0 or time.monotonic() - self._flushed > WINDOW_SECONDS:
            self.flush()

    def event(self, step: int, kind: str, **facts: Any) -> None:
        text = json.dumps(facts, default=str)
        self._hand_over([("INSERT INTO event VALUES (NULL, ?, ?, ?, ?)", (step, time.time(), kind, text))])

    def flush(self) -> None:
        rows = [summarise(signal, pairs) for signal, pairs in self._buffer.items()]
        self._buffer, self._flushed = {}, time.monotonic()
        marks = ", ".join("?" * 11)
        self._hand_over([(f"INSERT OR REPLACE INTO reading VALUES ({marks})", row) for row in rows])

    def _hand_over(self, statements: list[tuple[str, tuple[Any, ...]]]) -> None:
        try:
            self._queue.put_nowait(statements)
        except queue.Full:
            self._say(f"The record is too slow: {len(statements)} rows were left out.")

    def close(self) -> None:
        self.flush()
        self._queue.put(None)
        self._thread.join()

    def _write_all(self) -> None:
        try:
            database = open_database(self._path)
            forget_from(database, self._from_step)
        except Exception as error:  # also a damaged row: without this thread the queue would fill, and `close` hang
            self._say(f"The record {self._path} cannot be opened ({error}); the run goes on without it.")
            database = None
        while (statements := self._queue.get()) is not None:
            if database is not None:
                self._write(database, statements)
        if database is not None:
            database.close()

    def _write(self, database: sqlite3.Connection, statements: list[tuple[str, tuple[Any, ...]]]) -> None:
        try:
            with database:
                database.execute("BEGIN")
                for statement, values in statements:
                    database.execute(statement, values)
        except Exception as error:
            self._say(f"The record could not be written ({error}); {len(statements)} rows are lost, the run goes on.")


def open_database(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None, timeout=10)
    database.execute("PRAGMA journal_mode = WAL")  # readers and the writer never wait for each other
    database.execute("PRAGMA synchronous = NORMAL")
    database.executescript(SCHEMA)
    database.execute(f"PRAGMA user_version = {VERSION}")
    return database


def summarise(signal: str, pairs: list[tuple[int, float]]) -> Row:
    """One window as a row; a non-finite number is counted and kept, never dropped."""
    steps = np.array([step for step, _ in pairs], dtype=np.int64)
    with np.errstate(over="ignore"):  # beyond float32: counted with the infinite ones
        numbers = np.array([number for _, number in pairs], dtype=np.float32)
    finite = numbers[np.isfinite(numbers)].astype(np.float64)
    low, high, mean = (float(finite.min()), float(finite.max()), float(finite.mean())) if len(finite) else (None,) * 3
    latest = float(numbers[-1]) if np.isfinite(numbers[-1]) else None
    places = None if (np.diff(steps) == 1).all() else steps.tobytes()
    count = len(numbers)
    span = int(steps[0]), int(steps[-1])
    return (signal, *span, count, count - len(finite), low, high, mean, latest, places, numbers.tobytes())


def forget_from(database: sqlite3.Connection, step: int) -> None:
    """Drops everything at or after a step that is about to be trained again; a window that straddles it is cut."""
    straddling = database.execute(
        "SELECT signal, first, last, steps, numbers FROM reading WHERE first < ? AND last >= ?", (step, step)
    ).fetchall()
    with database:
        database.execute("BEGIN")
        database.execute("DELETE FROM reading WHERE last >= ?", (step,))
        database.execute("DELETE FROM event WHERE step >= ?", (step,))
        for signal, first, last, steps, numbers in straddling:
            pairs = [(s, n) for s, n in unpack(first, last, steps, numbers) if s < step]
            database.execute(f"INSERT OR REPLACE INTO reading VALUES ({', '.join('?' * 11)})", summarise(signal, pairs))


def unpack(first: int, last: int, steps: bytes | None, numbers: bytes) -> list[tuple[int, float]]:
    places = range(first, last + 1) if steps is None else np.frombuffer(steps, np.int64).tolist()
    return list(zip(places, np.frombuffer(numbers, np.float32).tolist(), strict=True))


def open_reader(path: Path) -> sqlite3.Connection:
    """Read only; a run goes on writing meanwhile."""
    return sqlite3.connect(f"file:{quote(os.fsencode(path))}?mode=ro", uri=True)


def read_signal(path: Path, signal: str) -> list[tuple[int, float]]:
    """All readings of one signal, in order, as (step, number)."""
    database = open_reader(path)
    try:
        rows = database.execute(
            "SELECT first, last, steps, numbers FROM reading WHERE signal = ? ORDER BY first", (signal,)
        ).fetchall()
    finally:
        database.close()
    return [pair for row in rows for pair in unpack(*row)]


def read_events(path: Path, kind: str | None = None) -> list[tuple[int, str, dict[str, Any]]]:
    """(step, kind, facts) of every event, or of one kind."""
    database = open_reader(path)
    try:
        rows = database.execute("SELECT step, kind, facts FROM event ORDER BY id").fetchall()
    finally:
        database.close()
    return [(step, name, json.loads(facts)) for step, name, facts in rows if kind in (None, name)]
