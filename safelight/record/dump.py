"""What a record holds as JSON and CSV, for people and for other programs."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, TextIO

from safelight.config.resolve import nearest
from safelight.errors import UsageError
from safelight.record.fact_encoding import replace_nonfinite
from safelight.record.history import History
from safelight.record.smoothing import moving_mean
from safelight.vocabulary import RECENT, signal_of
from safelight.words import printable

Span = tuple[int | None, int | None]
COLUMNS = ("first", "last", "count", "nonfinite", "low", "high", "mean", "latest")


def describe(
    history: History,
    name: str,
    first: int | None = None,
    last: int | None = None,
    *,
    points: int | None = None,
    recent: int | None = None,
) -> dict[str, Any]:
    """All that is known of a signal in a range, as JSON has it: null where a number is not finite. `recent`: newest
    steps whose mean is taken."""
    signal, total = signal_of(name), history.total(name, first, last)
    found: dict[str, Any] = {"unit": signal and signal.unit, "meaning": signal and signal.meaning}
    if total is None:
        return found | {"count": 0}
    newest = history.total(name, max(total.first, total.last - (recent or RECENT) + 1), total.last)
    found |= asdict(total) | {"recent": newest and newest.mean}
    if points is not None:
        spans = history.zoom(name, first, last, pixels=points)
        found["points"] = {column: getattr(spans, column).tolist() for column in COLUMNS}
    return replace_nonfinite(found, lambda _: None)


def write_csv(
    file: TextIO, history: History, names: list[str], span: Span, points: int | None, smooth: int | None = None
) -> None:
    """`smooth`: with the mean of the readings of the last so many steps beside each."""
    writer = csv.writer(file, lineterminator="\n")
    if smooth is not None:
        writer.writerow(["signal", "step", "number", "smooth"])
        for name in names:
            steps, numbers = history.raw(name, *span)
            rows = zip(steps.tolist(), map(str, numbers), moving_mean(steps, numbers, smooth).tolist(), strict=True)
            writer.writerows((printable(name), *row) for row in rows)
        return
    writer.writerow(["signal", "step", "number"] if points is None else ["signal", *COLUMNS])
    for name in names:
        writer.writerows((printable(name), *row) for row in rows_of(history, name, span, points))


def rows_of(history: History, name: str, span: Span, points: int | None) -> Iterator[tuple[Any, ...]]:
    if points is None:
        steps, numbers = history.raw(name, *span)
        # float32 in the fewest digits that read back the same
        return zip(steps.tolist(), map(str, numbers), strict=True)
    spans = history.zoom(name, *span, pixels=points)
    return zip(*(getattr(spans, column).tolist() for column in COLUMNS), strict=True)


def choose_signals(available: list[str], requested: tuple[str, ...]) -> list[str]:
    """The requested ones, each once, or all; an unknown name is an error with the nearest known one."""
    for name in requested:
        if name not in available:
            raise UsageError(f"This run has no signal {name!r}{nearest(name, available)} It has {len(available)}.")
    return list(dict.fromkeys(requested)) or available
