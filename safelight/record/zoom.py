"""One signal over a range of steps, in about as many spans as there are pixels; nothing in a span is hidden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from safelight.record.chunk_writer import width
from safelight.record.schema import BITS, CHUNK_STEPS, LEVELS


@dataclass(frozen=True, slots=True)
class Zoom:
    """Spans in order, one entry of each array per span; statistics are of the finite numbers, NaN if there are none."""

    first: np.ndarray  # step of the first number of the span
    last: np.ndarray
    count: np.ndarray
    nonfinite: np.ndarray
    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    latest: np.ndarray

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True, slots=True)
class Total:
    """All spans as one."""

    first: int
    last: int
    count: int
    nonfinite: int
    low: float
    high: float
    mean: float
    latest: float  # NaN if the last number is not finite


def choose_width(steps: int, pixels: int) -> int:
    """1, 4, 16, 64, 256, …: the widest of which `pixels` fit into the steps."""
    chosen = 1
    while chosen << BITS <= steps / max(pixels, 1) and chosen < width(LEVELS):
        chosen <<= BITS
    return chosen


def level_of(chosen: int) -> int:
    return (chosen // CHUNK_STEPS).bit_length() // BITS


def from_rows(rows: Sequence[tuple]) -> Zoom:
    """Rows of `reading` or `rollup`."""
    columns = list(zip(*rows, strict=True)) or [()] * 8
    whole = [np.array(column, np.int64) for column in columns[:4]]
    return Zoom(*whole, *(np.array(column, np.float64) for column in columns[4:]))  # None becomes NaN


def from_numbers(steps: np.ndarray, numbers: np.ndarray, chosen: int) -> Zoom:
    """Spans narrower than a row, from the numbers themselves."""
    if not len(steps):
        return from_rows([])
    starts = np.concatenate([[0], np.flatnonzero(np.diff(steps // chosen)) + 1])
    ends = np.append(starts[1:], len(steps)) - 1
    finite = np.isfinite(numbers)
    filled = np.where(finite, numbers, np.nan).astype(np.float64)
    kept = np.add.reduceat(finite.astype(np.int64), starts)
    total = np.add.reduceat(np.where(finite, filled, 0), starts)
    count = ends - starts + 1
    low, high = np.fmin.reduceat(filled, starts), np.fmax.reduceat(filled, starts)
    mean = np.where(kept > 0, total / np.maximum(kept, 1), np.nan)
    return Zoom(steps[starts], steps[ends], count, count - kept, low, high, mean, filled[ends])


def sum_up(spans: Zoom) -> Total | None:
    """None if there are no numbers at all."""
    if not len(spans):
        return None
    has_mean = ~np.isnan(spans.mean) & (spans.count > spans.nonfinite)  # an untrusted row may have a mean of no numbers
    low = high = mean = np.nan
    if has_mean.any():
        low, high = np.min(spans.low[has_mean]), np.max(spans.high[has_mean])
        mean = np.average(spans.mean[has_mean], weights=(spans.count - spans.nonfinite)[has_mean])
    whole = int(spans.first[0]), int(spans.last[-1]), int(spans.count.sum()), int(spans.nonfinite.sum())
    return Total(*whole, float(low), float(high), float(mean), float(spans.latest[-1]))
