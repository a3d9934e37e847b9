"""CSV and its kin: commas, semicolons, tabs, bars; with or without a header."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator
from pathlib import Path

from safelight.diagnosis.logs.cells import STEP, Row, number_of
from safelight.diagnosis.logs.text_file import lines_of

DELIMITERS = (",", ";", "\t", "|")
LOOK = 20  # lines by which the delimiter is told
TENSORBOARD = ["wall time", "step", "value"]  # what its pages offer for download


def rows(path: Path) -> Iterator[Row]:
    lines = (line for line in lines_of(path) if line.strip() and not line.startswith("#"))
    first = list(itertools.islice(lines, LOOK))
    if not first:
        return
    delimiter = _delimiter(first)
    reader = csv.reader(itertools.chain(first, lines), delimiter=delimiter, skipinitialspace=True)
    header = next(reader)
    names = [name.strip() for name in header]
    if all(number_of(name) is not None for name in names if name):  # numbers: there is no header
        names = ["loss"] if len(names) == 1 else [STEP, "loss", *(f"column {n}" for n in range(3, len(names) + 1))]
        yield _row(names, header, delimiter)
    if [name.lower() for name in names] == TENSORBOARD:
        names = ["wall time", "step", "loss"]
    while (cells := _next(reader)) is not None:
        if cells != header:  # a header that stands there again, after a restart
            yield _row(names, cells, delimiter)


def _next(reader: Iterator[list[str]]) -> list[str] | None:
    """A line that a kill broke, or a quote that never ends, ends the file."""
    try:
        return next(reader, None)
    except csv.Error:
        return None


def _row(names: list[str], cells: list[str], delimiter: str) -> Row:
    if delimiter == ";":
        cells = [cell.replace(",", ".") for cell in cells]
    return dict(zip(names, cells, strict=False))


def _delimiter(lines: list[str]) -> str:
    """The one that parts these lines into the most columns, as many in each."""

    def columns(delimiter: str) -> tuple[bool, int]:
        counts = [len(cells) for cells in csv.reader(lines, delimiter=delimiter)]
        return len(set(counts)) == 1, min(counts, default=1)

    return max(DELIMITERS, key=columns)


def is_delimited(path: Path) -> bool:
    """Whether the first lines are a table: by name, or by a header that the second line has numbers for."""
    if path.suffix.lower() in (".csv", ".tsv"):
        return True
    first = list(itertools.islice((line for line in lines_of(path) if line.strip()), 3))
    if len(first) < 2:
        return False
    delimiter = _delimiter(first)
    parted = list(csv.reader(first, delimiter=delimiter))
    numbers = [[number_of(cell) is not None for cell in cells if cell.strip()] for cells in parted]
    same = len({len(cells) for cells in parted}) == 1
    one = len(parted[0]) == 1
    if one:
        return all(all(each) for each in numbers[1:])
    return same and any(numbers[-1]) and not any(numbers[0])
