"""The columns of a log that mean something, gathered row by row within a bounded memory."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from safelight.diagnosis.logs.cells import STEP, Row, is_rounded_zero, number_of
from safelight.diagnosis.logs.columns import role_of

MAX_NUMBERS = 1 << 22  # numbers that are kept, 64 MB; then every second row of them is dropped
MOST_COLUMNS = 64  # that are kept
MOST_NAMES = 256  # that are remembered of columns that mean nothing to us
MOST_SHAPES = 255  # kinds of rows, by the cells that are filled
MOST_BROKEN = 10_000  # places with a number that is not finite
MAY_BE_NAN = ("loss", "gradient norm")
NAMED, NUMBER, COUNTED = ("metric", "name", "key", "tag", "signal"), "value", ("step", "global_step", "iteration")


class Column:
    """Numbers and the rows they stand in."""

    def __init__(self) -> None:
        self.rows, self.numbers = array("q"), array("d")
        self.broken: list[int] = []
        """Rows with a number that is not finite; these are never dropped."""

    def add(self, row: int, number: float) -> None:
        self.rows.append(row)
        self.numbers.append(number)

    def thin(self, apart: int) -> None:
        rows, numbers = self.arrays()
        kept = rows % apart == 0
        self.rows, self.numbers = array("q", rows[kept].tobytes()), array("d", numbers[kept].tobytes())

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array(self.rows, np.int64), np.array(self.numbers, np.float64)


class Table:
    """Fed with rows; `columns` has what was recognised, `others` the names of the rest."""

    def __init__(self, chosen: str | None = None) -> None:
        self.chosen = chosen
        """The column that a person says is the loss."""
        self.columns: dict[str, Column] = {}
        self.others: dict[str, None] = {}
        self.rows = 0
        self.apart = 1
        """One row in so many is kept."""
        self.rounded: set[str] = set()
        """Columns with zeros that are only what rounding left."""
        self._kept = 0
        self._shapes: dict[frozenset[str], int] = {}
        self._shape_of_row = array("B")
        self._has_shapes = True

    def extend(self, rows: Iterable[Row]) -> Table:
        for row in rows:
            self.add(row)
        return self

    def add(self, row: Row) -> None:
        place, filled = self.rows, []
        self.rows += 1
        for name, cell in _pivoted(row).items():
            number = number_of(cell)
            if number is None:
                if is_rounded_zero(cell):
                    self.rounded.add(name)
                    filled.append(name)
                continue
            filled.append(name)
            if not self._is_known(name):
                if len(self.others) < MOST_NAMES:
                    self.others[name] = None
                continue
            self._keep(name, place, number)
        self._remember_shape(filled)

    def _is_known(self, name: str) -> bool:
        known = name == self.chosen or role_of(name) is not None
        return known and (name in self.columns or len(self.columns) < MOST_COLUMNS)

    def _keep(self, name: str, place: int, number: float) -> None:
        column = self.columns.setdefault(name, Column())
        if not math.isfinite(number) and len(column.broken) < MOST_BROKEN:
            column.broken.append(place)
        if place % self.apart:
            return
        column.add(place, number)
        self._kept += 1
        if self._kept > MAX_NUMBERS:
            self.apart *= 2
            for each in self.columns.values():
                each.thin(self.apart)
            self._kept = sum(len(each.rows) for each in self.columns.values())

    def _remember_shape(self, filled: list[str]) -> None:
        if not self._has_shapes:
            return
        shape = self._shapes.setdefault(frozenset(filled), len(self._shapes))
        self._has_shapes = shape < MOST_SHAPES and len(self._shape_of_row) < MAX_NUMBERS
        if self._has_shapes:
            self._shape_of_row.append(shape)

    def emptied(self, name: str) -> list[int]:
        """Rows that are like those with a number in this column, only that it is empty there: pandas and JavaScript
        write NaN so. Rows of another kind, such as those of a validation, have other cells."""
        if not self._has_shapes:
            return []
        shapes = {number: cells for cells, number in self._shapes.items()}
        counts = Counter(self._shape_of_row)
        full = [number for number, cells in shapes.items() if name in cells]
        if not full:
            return []
        usual = shapes[max(full, key=lambda number: counts[number])]
        optional = {each for each in usual if role_of(each) in MAY_BE_NAN} | {name}
        rest = usual - optional
        alike = [n for n, cells in shapes.items() if rest and name not in cells and rest <= cells <= usual]
        return [row for row, shape in enumerate(self._shape_of_row) if shape in alike][:MOST_BROKEN]


def _pivoted(row: Row) -> Mapping[str, Any]:
    """{"step": 3, "metric": "loss", "value": 0.5}: a log with one row for each number."""
    named = next((key for key in NAMED if isinstance(row.get(key), str)), None)
    if named is None or NUMBER not in row:
        return row
    step = next((row[key] for key in COUNTED if key in row), None)
    return {STEP: step, str(row[named]): row[NUMBER]}
