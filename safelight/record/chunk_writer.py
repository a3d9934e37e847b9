"""The rows of `reading` and `rollup` that the writer has in hand: filled in memory, stored in one transaction."""

from __future__ import annotations

import contextlib
import sqlite3
from itertools import pairwise

import numpy as np

from safelight.record.chunks import Chunk, combine, pack, unpack
from safelight.record.schema import BITS, CHUNK_STEPS, LEVELS

PLACEHOLDERS = ", ".join("?" * 11)
STATISTICS = "first, last, count, nonfinite, low, high, mean, latest"


class ChunkWriter:
    """Keeps the newest chunk of every signal, and those that changed since the last commit."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self.database = database
        self._chunks: dict[str, dict[int, Chunk]] = {}
        self._newest: dict[str, int] = {}

    @property
    def size(self) -> int:
        return sum(map(len, self._chunks.values()))

    def put(self, steps: np.ndarray, names: tuple[str, ...], numbers: np.ndarray) -> None:
        """`numbers` [steps, names]."""
        if numbers.shape != (len(steps), len(names)):
            raise ValueError(f"{len(steps)} steps and {len(names)} signals came with numbers of {numbers.shape}")
        if not len(steps):
            return
        columns = np.ascontiguousarray(numbers.T)
        indices = steps // CHUNK_STEPS
        edges = [0, *(np.flatnonzero(np.diff(indices)) + 1).tolist(), len(steps)]
        for start, stop in pairwise(edges):
            part = steps[start:stop]
            for signal, column in zip(names, columns, strict=True):
                chunk = self._chunk(signal, int(indices[start]))
                chunk.steps.append(part)
                chunk.numbers.append(column[start:stop])
                chunk.changed = True

    def _chunk(self, signal: str, index: int) -> Chunk:
        chunks = self._chunks.get(signal)
        if chunks is None:
            chunks = self._chunks[signal] = self._newest_stored(signal)
            self._newest[signal] = max(chunks, default=index - 1)
        if index in chunks:
            return chunks[index]
        if index > self._newest[signal]:
            self._newest[signal] = index
            chunks[index] = Chunk(signal, index, [], [])
        else:  # a number that comes late
            chunks[index] = self._stored(signal, index)
        return chunks[index]

    def _newest_stored(self, signal: str) -> dict[int, Chunk]:
        """After a resume, the row that was being filled is filled further."""
        query = "SELECT first FROM reading WHERE signal = ? ORDER BY first DESC LIMIT 1"
        indices = [first // CHUNK_STEPS for (first,) in self.database.execute(query, (signal,))]
        return {index: self._stored(signal, index) for index in indices}

    def _stored(self, signal: str, index: int) -> Chunk:
        query = "SELECT first, last, steps, numbers FROM reading WHERE signal = ? AND first BETWEEN ? AND ?"
        start = index * CHUNK_STEPS
        parts = []
        for row in self.database.execute(query, (signal, start, start + CHUNK_STEPS - 1)).fetchall():
            with contextlib.suppress(ValueError):  # a damaged row stays as it is; the good ones go on
                parts.append(unpack(*row))
        steps, numbers = [s for s, _ in parts], [n for _, n in parts]
        return Chunk(signal, index, steps, numbers, stored=tuple(int(each[0]) for each in steps))

    def store(self) -> None:
        """Writes what changed, and the rollups that are complete or changed with it. Needs an open transaction."""
        chunks = [chunk for each in self._chunks.values() for chunk in each.values()]
        changed = [chunk for chunk in chunks if chunk.changed]
        rows = pack(changed)
        moved = [(c.signal, first) for c in changed for first in c.stored if first != c.steps[0][0]]
        self.database.executemany("DELETE FROM reading WHERE signal = ? AND first = ?", moved)
        self.database.executemany(f"INSERT OR REPLACE INTO reading VALUES ({PLACEHOLDERS})", rows)
        below = {(chunk.signal, chunk.index) for chunk in chunks}
        for level in range(1, LEVELS + 1):
            below = {(s, i >> BITS) for s, i in below if i >> BITS < self._newest[s] >> BITS * level}
            if not below:  # as in most commits
                break
            for signal, index in below:
                roll_up(self.database, signal, level, index)

    def mark_stored(self) -> None:
        """After the commit: only the newest chunks are kept."""
        for signal, chunks in self._chunks.items():
            newest = chunks[self._newest[signal]]
            newest.changed, newest.stored = False, tuple(int(steps[0]) for steps in newest.steps)
            self._chunks[signal] = {newest.index: newest}

    def forget(self) -> None:
        self._chunks, self._newest = {}, {}


def width(level: int) -> int:
    """Steps that a row of a level covers."""
    return CHUNK_STEPS << BITS * level


def select_statistics(database: sqlite3.Connection, signal: str, level: int, first: int, last: int) -> list[tuple]:
    """The statistics of the rows of a level that begin in a range, which includes both ends; level 0 is `reading`."""
    table = f"rollup WHERE level = {level} AND" if level else "reading WHERE"
    query = f"SELECT {STATISTICS} FROM {table} signal = ? AND first BETWEEN ? AND ? ORDER BY first"
    return database.execute(query, (signal, first, last)).fetchall()


def roll_up(database: sqlite3.Connection, signal: str, level: int, index: int) -> None:
    span = index * width(level), (index + 1) * width(level) - 1
    rows = select_statistics(database, signal, level - 1, *span)
    database.execute(
        "DELETE FROM rollup WHERE signal = ? AND level = ? AND first BETWEEN ? AND ?", (signal, level, *span)
    )
    if rows:
        database.execute(f"INSERT INTO rollup VALUES ({PLACEHOLDERS[:-3]})", (signal, level, *combine(rows)))
