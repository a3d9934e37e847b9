"""What a record holds, for rules, pages and reports: read at any zoom, also while the run goes on."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from safelight.errors import RecordError
from safelight.record.chunk_writer import select_statistics, width
from safelight.record.chunks import summarise, unpack, unpack_all
from safelight.record.database import SIGNALS, read_version
from safelight.record.reading import open_reader
from safelight.record.schema import CHUNK_STEPS, VERSION, foreign_table, newer
from safelight.record.zoom import Total, Zoom, choose_width, from_numbers, from_rows, level_of, sum_up

LOWEST_STEP = -(1 << 62)
ROWS = "SELECT first, last, steps, numbers FROM reading WHERE signal = ?"
CLOCK_INTERVAL = 20_000  # instructions of SQLite, about a millisecond


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


class History:
    """One reader. Each answer is of one moment; the next one may know more. Not for several threads at once."""

    def __init__(self, path: Path, database: sqlite3.Connection, version: int) -> None:
        self.path, self._database, self._version = path, database, version

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()

    def signals(self) -> list[str]:
        """Names of all signals, in alphabetical order."""
        with self._read_transaction():
            return [name for (name,) in self._database.execute(SIGNALS)]

    def zoom(self, signal: str, first: int | None = None, last: int | None = None, *, pixels: int = 1000) -> Zoom:
        """A range that includes both ends, in at least `pixels` spans where there are as many steps.

        There are at most about four times as many, and about as many rows are read, however long the range is.
        """
        with self._read_transaction():
            ends = self._ends(signal, first, last)
            if ends is None:
                return from_rows([])
            chosen = choose_width(ends[1] - ends[0] + 1, pixels)
            if chosen < CHUNK_STEPS or self._version < 2:  # version 1 had no rollups
                return from_numbers(*self._numbers(signal, *ends), chosen)
            rows = self._spans(signal, *ends, level_of(chosen))
            whole = [row for row in rows if row[0] >= ends[0] and row[1] <= ends[1]]
            return from_rows(whole if len(whole) == len(rows) else self._clipped(signal, rows, *ends))

    def total(self, signal: str, first: int | None = None, last: int | None = None) -> Total | None:
        """Statistics of a range."""
        return sum_up(self.zoom(signal, first, last, pixels=256))

    def raw(self, signal: str, first: int | None = None, last: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(steps, numbers) of a range that includes both ends, as they were measured."""
        with self._read_transaction():
            ends = self._ends(signal, first, last)
            return self._numbers(signal, *(ends or (0, -1)))

    def since(self, seen_until: Mapping[str, int], most: int) -> dict[str, tuple[np.ndarray, np.ndarray] | None]:
        """(steps, numbers) of each signal after a step of its own, as `raw` has them but with less looking around;
        None if there are more than `most`."""
        query = f"{ROWS} AND first >= ? AND last > ? ORDER BY first LIMIT ?"
        found = dict[str, tuple[np.ndarray, np.ndarray] | None]()
        with self._read_transaction():
            for signal, step in seen_until.items():
                rows = self._database.execute(query, (signal, self._row_of(step), step, most + 1)).fetchall()
                found[signal] = _after(rows, step, most)
        return found

    def last(self, signal: str) -> tuple[int, float] | None:
        """(step, number) of the newest reading."""
        with self._read_transaction():
            for row in self._database.execute(f"{ROWS} ORDER BY first DESC LIMIT 1", (signal,)).fetchall():
                steps, numbers = unpack(*row)
                return int(steps[-1]), float(numbers[-1])
        return None

    def find(self, signal: str, number: float) -> int | None:
        """Step of the first reading that is this low or this high: a lowest or highest number of `total`."""
        spans = self.zoom(signal)
        for span in np.flatnonzero((spans.low == number) | (spans.high == number)):
            steps, numbers = self.raw(signal, int(spans.first[span]), int(spans.last[span]))
            return int(steps[numbers == number][0])
        return None

    def ends(self, signal: str) -> tuple[int, int] | None:
        """Steps of the first and the last reading."""
        with self._read_transaction():
            return self._ends(signal, None, None)

    def events(self, kind: str | None = None, *, most: int | None = None) -> list[RecordedEvent]:
        """As they came; the newest if there are more than `most`."""
        with self._read_transaction():
            return self._notes("event", "kind", kind, most)

    def findings(self, code: str | None = None, *, most: int | None = None) -> list[RecordedEvent]:
        with self._read_transaction():
            return self._notes("finding", "code", code, most) if self._version >= 2 else []

    def pictures(self, kind: str | None = None, *, most: int | None = None) -> list[RecordedPicture]:
        """In the order of their steps."""
        if self._version < 2:
            return []
        query = "SELECT step, kind, path, width, height FROM picture WHERE ? IN (kind, '') "
        with self._read_transaction():
            rows = self._database.execute(f"{query} ORDER BY step, kind, path LIMIT ?", (kind or "", _limit(most)))
            return [RecordedPicture(step, name, Path(path), w, h) for step, name, path, w, h in rows]

    def _notes(self, table: str, column: str, name: str | None, most: int | None) -> list[RecordedEvent]:
        query = f"SELECT step, time, {column}, facts FROM {table} WHERE ? IN ({column}, '') ORDER BY id DESC LIMIT ?"
        rows = self._database.execute(query, (name or "", _limit(most))).fetchall()
        return [RecordedEvent(step, at, called, json.loads(facts)) for step, at, called, facts in reversed(rows)]

    def newest_notes(self) -> tuple[int, ...]:
        """Numbers that change whenever an event, a finding or a picture is added or cut off."""
        queries = ["SELECT max(id) FROM event"]
        queries += ["SELECT max(id) FROM finding", "SELECT count(*) FROM picture"] if self._version >= 2 else []
        with self._read_transaction():
            return tuple(int(self._database.execute(query).fetchone()[0] or 0) for query in queries)

    def _ends(self, signal: str, first: int | None, last: int | None) -> tuple[int, int] | None:
        """The range without what lies before the first reading and after the last."""
        query = "SELECT first, last FROM reading WHERE signal = ? ORDER BY first {} LIMIT 1"
        rows = [self._database.execute(query.format(way), (signal,)).fetchone() for way in ("ASC", "DESC")]
        if None in rows:
            return None
        (lowest, _), (_, highest) = rows
        if not (isinstance(lowest, int) and isinstance(highest, int)):  # a flipped bit made it NULL
            raise ValueError(f"a row of {signal} does not say of which steps it is")
        return lowest if first is None else max(first, lowest), highest if last is None else min(last, highest)

    def _spans(self, signal: str, first: int, last: int, level: int) -> list[tuple]:
        """Rows of a level, and the end that is not summed up yet from the levels below."""
        start, found = first // width(level) * width(level), list[tuple]()
        for each in range(level, -1, -1):
            found += select_statistics(self._database, signal, each, start, last)
            start = found[-1][1] + 1 if found else start
        return found

    def _clipped(self, signal: str, rows: list[tuple], first: int, last: int) -> list[tuple]:
        """Rows that reach over an end are summed up again, from the numbers inside."""
        found = []
        for row in rows:
            if row[0] >= first and row[1] <= last:
                found.append(row)
                continue
            steps, numbers = self._numbers(signal, max(first, row[0]), min(last, row[1]))
            if len(steps):
                found.append((int(steps[0]), int(steps[-1]), *summarise(numbers[None])[0]))
        return found

    def _numbers(self, signal: str, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        query = f"{ROWS} AND first BETWEEN ? AND ? AND last >= ? ORDER BY first"
        rows = self._database.execute(query, (signal, self._row_of(first), last, first)).fetchall()
        steps, numbers = unpack_all(rows)
        inside = (steps >= first) & (steps <= last)
        return steps[inside], numbers[inside]

    def _row_of(self, step: int) -> int:
        """The first step that a row with this step may begin at."""
        return step // CHUNK_STEPS * CHUNK_STEPS if self._version >= 2 else LOWEST_STEP

    def check(self, seconds: float | None) -> None:
        """Refuses what safelight did not write. From now on, queries that take longer than this in all are aborted."""
        if self._version == 0:
            raise RecordError(
                f"{self.path} holds no record: nothing was written to it yet, or another program made it."
            )
        if not 0 < self._version <= VERSION:
            raise newer(self.path, self._version)
        if seconds is not None:
            until = time.monotonic() + seconds
            self._database.set_progress_handler(lambda: time.monotonic() > until, CLOCK_INTERVAL)
        with self._read_transaction():
            name = foreign_table(self._database)
        if name is not None:
            raise RecordError(
                f"The record {self.path} cannot be read: its table {name} is not one that safelight made."
            )

    @contextmanager
    def _read_transaction(self) -> Iterator[None]:
        """All queries inside see the record as it was at one moment; the writer goes on."""
        try:
            self._database.execute("BEGIN")
            yield
        except (sqlite3.Error, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise RecordError(f"The record {self.path} cannot be read: {error}.") from error
        finally:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")


def _limit(most: int | None) -> int:
    return -1 if most is None else most


def _after(rows: list[tuple], step: int, most: int) -> tuple[np.ndarray, np.ndarray] | None:
    if sum(len(row[3]) for row in rows) // 4 > most + CHUNK_STEPS:
        return None
    steps, numbers = unpack(*rows[0]) if len(rows) == 1 else unpack_all(rows)
    new = steps > step
    return (steps[new], numbers[new]) if np.count_nonzero(new) <= most else None


def open_history(path: Path, *, seconds: float | None = None) -> History:
    """The record of a run for reading; anything else is an error. `seconds`: after which a record that was made
    to be read without end is given up."""
    if not path.is_file():
        raise RecordError(f"There is no record {path} yet: it appears when the training begins.")
    try:
        database = open_reader(path)
        version = read_version(database)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # what SQLite quotes of a damaged file need not be text
        raise RecordError(f"The record {path} cannot be read: {error}.") from error
    history = History(path, database, version)
    try:
        history.check(seconds)
    except BaseException:
        history.close()
        raise
    return history
