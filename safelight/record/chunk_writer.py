"""The rows of `reading` and `rollup` that the writer has in hand: filled in memory, stored in one transaction."""

from __future__ import annotations

import contextlib
import sqlite3
from itertools import pairwise

import numpy as np

from safelight.record.chunks import Chunk, combine, pack, unpack
from safelight.record.schema import BITS, CELL, LEVELS

MARKS = ", ".join("?" * 11)
STATISTICS = "first, last, count, nonfinite, low, high, mean, latest"


class ChunkWriter:
    """Keeps the newest cell of every signal, and those that changed since the last commit."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self.database = database
        self._cells: dict[str, dict[int, Chunk]] = {}
        self._newest: dict[str, int] = {}

    @property
    def size(self) -> int:
        return sum(map(len, self._cells.values()))

    def put(self, steps: np.ndarray, names: tuple[str, ...], numbers: np.ndarray) -> None:
        """`numbers` [steps, names]."""
        if numbers.shape != (len(steps), len(names)):
            raise ValueError(f"{len(steps)} steps and {len(names)} signals came with numbers of {numbers.shape}")
        if not len(steps):
            return
        columns = np.ascontiguousarray(numbers.T)
        indices = steps // CELL
        edges = [0, *(np.flatnonzero(np.diff(indices)) + 1).tolist(), len(steps)]
        for start, stop in pairwise(edges):
            part = steps[start:stop]
            for signal, column in zip(names, columns, strict=True):
                cell = self._cell(signal, int(indices[start]))
                cell.steps.append(part)
                cell.numbers.append(column[start:stop])
                cell.changed = True

    def _cell(self, signal: str, index: int) -> Chunk:
        cells = self._cells.get(signal)
        if cells is None:
            cells = self._cells[signal] = self._newest_stored(signal)
            self._newest[signal] = max(cells, default=index - 1)
        if index in cells:
            return cells[index]
        if index > self._newest[signal]:
            self._newest[signal] = index
            cells[index] = Chunk(signal, index, [], [])
        else:  # a number that comes late
            cells[index] = self._stored(signal, index)
        return cells[index]

    def _newest_stored(self, signal: str) -> dict[int, Chunk]:
        """After a resume, the row that was being filled goes on being filled."""
        query = "SELECT first FROM reading WHERE signal = ? ORDER BY first DESC LIMIT 1"
        return {f // CELL: self._stored(signal, f // CELL) for (f,) in self.database.execute(query, (signal,))}

    def _stored(self, signal: str, index: int) -> Chunk:
        query = "SELECT first, last, steps, numbers FROM reading WHERE signal = ? AND first BETWEEN ? AND ?"
        rows = self.database.execute(query, (signal, index * CELL, index * CELL + CELL - 1)).fetchall()
        parts = []
        for row in rows:
            with contextlib.suppress(ValueError):  # a damaged row stays as it is; the good ones go on
                parts.append(unpack(*row))
        steps, numbers = [s for s, _ in parts], [n for _, n in parts]
        return Chunk(signal, index, steps, numbers, stored=tuple(int(each[0]) for each in steps))

    def store(self) -> None:
        """Writes what changed, and the rollups that are complete or changed with it. Needs an open transaction."""
        cells = [cell for each in self._cells.values() for cell in each.values()]
        changed = [cell for cell in cells if cell.changed]
        rows = pack(changed)
        moved = [(c.signal, first) for c in changed for first in c.stored if first != c.steps[0][0]]
        self.database.executemany("DELETE FROM reading WHERE signal = ? AND first = ?", moved)
        self.database.executemany(f"INSERT OR REPLACE INTO reading VALUES ({MARKS})", rows)
        below = {(cell.signal, cell.index) for cell in cells}
        for level in range(1, LEVELS + 1):
            below = {(s, i >> BITS) for s, i in below if i >> BITS < self._newest[s] >> BITS * level}
            if not below:  # as in most commits
                break
            for signal, index in below:
                roll_up(self.database, signal, level, index)

    def settle(self) -> None:
        """After the commit: only the newest cells are kept."""
        for signal, cells in self._cells.items():
            newest = cells[self._newest[signal]]
            newest.changed, newest.stored = False, tuple(int(steps[0]) for steps in newest.steps)
            self._cells[signal] = {newest.index: newest}

    def forget(self) -> None:
        self._cells, self._newest = {}, {}


def width(level: int) -> int:
    """Steps that a row of a level covers."""
    return CELL << BITS * level


def select_statistics(database: sqlite3.Connection, signal: str, level: int, first: int, last: int) -> list[tuple]:
    """Of the rows of a level that begin in a range, which includes both ends; level 0 is `reading`."""
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
        database.execute(f"INSERT INTO rollup VALUES ({MARKS[:-3]})", (signal, level, *combine(rows)))
