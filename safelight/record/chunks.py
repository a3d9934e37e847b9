"""Readings of one signal within 64 steps: collected from the training, summed up and packed into a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

Statistics = tuple[int, int, float | None, float | None, float | None, float | None]
Row = tuple[str, int, int, int, int, float | None, float | None, float | None, float | None, bytes | None, bytes]


@dataclass(slots=True)
class Chunk:
    """What is known of a signal in steps 64 * index to 64 * index + 63, in the parts in which it came."""

    signal: str
    index: int
    steps: list[np.ndarray]
    numbers: list[np.ndarray]
    changed: bool = False
    stored: tuple[int, ...] = ()  # where the rows begin that there are of it already


@dataclass(frozen=True, slots=True)
class MergedSteps:
    """How the parts in which readings came become one; signals that are measured together share it."""

    parts: list[np.ndarray]  # held, so that no other array can get their id
    steps: np.ndarray
    order: np.ndarray | None  # None: they came in order
    encoded: bytes | None  # None: every step from the first to the last


def merge_steps(parts: list[np.ndarray]) -> MergedSteps:
    steps, order = np.concatenate(parts) if len(parts) > 1 else parts[0], None
    apart = np.diff(steps)
    if (apart < 0).any():
        order = np.argsort(steps, kind="stable")
        steps = steps[order]
        apart = np.diff(steps)
    return MergedSteps(parts, steps, order, None if (apart == 1).all() else steps.tobytes())


def pack(chunks: Iterable[Chunk]) -> list[Row]:
    """A row of `reading` for each chunk, whose parts become one. Those of one length are summed up together, and those
    of the same steps are put in order together, which is much faster."""
    merged_by_parts: dict[tuple[int, ...], MergedSteps] = {}
    alike: dict[int, list[tuple[Chunk, MergedSteps]]] = {}
    for chunk in chunks:
        key = tuple(map(id, chunk.steps))
        merged = merged_by_parts.get(key) or merged_by_parts.setdefault(key, merge_steps(chunk.steps))
        numbers = np.concatenate(chunk.numbers) if len(chunk.numbers) > 1 else chunk.numbers[0]
        chunk.steps, chunk.numbers = [merged.steps], [numbers if merged.order is None else numbers[merged.order]]
        alike.setdefault(len(numbers), []).append((chunk, merged))
    found = []
    for group in alike.values():
        statistics = summarise(np.stack([chunk.numbers[0] for chunk, _ in group]))
        for (chunk, merged), figures in zip(group, statistics, strict=True):
            span = int(merged.steps[0]), int(merged.steps[-1])
            found.append((chunk.signal, *span, *figures, merged.encoded, chunk.numbers[0].tobytes()))
    return found


def summarise(numbers: np.ndarray) -> list[Statistics]:
    """(count, nonfinite, low, high, mean, latest) of each line; what is not finite is counted and left out."""
    finite = np.isfinite(numbers)
    wide = numbers.astype(np.float64)  # float32 keeps the numbers, float64 adds them up
    kept = finite.sum(1)
    low = np.where(finite, wide, np.inf).min(1)
    high = np.where(finite, wide, -np.inf).max(1)
    mean = np.where(finite, wide, 0).sum(1) / np.maximum(kept, 1)
    columns = [_or_none(column, kept > 0) for column in (low, high, mean)]
    latest, count = _or_none(wide[:, -1], finite[:, -1]), numbers.shape[1]
    return list(zip([count] * len(numbers), (count - kept).tolist(), *columns, latest, strict=True))


def _or_none(column: np.ndarray, known: np.ndarray) -> list[float | None]:
    return [number if good else None for number, good in zip(column.tolist(), known.tolist(), strict=True)]


def unpack(first: int, last: int, steps: bytes | None, numbers: bytes) -> tuple[np.ndarray, np.ndarray]:
    """(steps, numbers) of a row; a damaged one is a ValueError."""
    found = np.frombuffer(numbers, np.dtype("<f4"))
    count = last - first + 1 if steps is None else len(steps) // 8
    if count != len(found) or not len(found):  # before room is made for as many steps as the row claims
        raise ValueError(f"a row of steps {first} to {last} has {count} steps and {len(found)} numbers")
    return np.arange(first, last + 1) if steps is None else np.frombuffer(steps, np.dtype("<i8")), found


def unpack_all(rows: Sequence[tuple[int, int, bytes | None, bytes]]) -> tuple[np.ndarray, np.ndarray]:
    """`unpack` of many rows as one. Rows of every step, which most are, are not opened one by one."""
    if not all(steps is None and len(numbers) == 4 * (last - first + 1) for first, last, steps, numbers in rows):
        parts = [unpack(*row) for row in rows]
        steps = np.concatenate([np.zeros(0, np.int64), *(s for s, _ in parts)])
        return steps, np.concatenate([np.zeros(0, np.float32), *(n for _, n in parts)])
    numbers = np.frombuffer(b"".join(row[3] for row in rows), np.dtype("<f4"))
    first = np.array([row[0] for row in rows], np.int64)
    count = np.array([len(row[3]) // 4 for row in rows], np.int64)
    offset = first - np.concatenate([[0], np.cumsum(count)[:-1]]) if len(rows) else first
    return np.arange(len(numbers)) + np.repeat(offset, count), numbers


def combine(rows: Sequence[tuple]) -> tuple:
    """(first, last, *statistics) of several such rows that follow each other."""
    first, last, count, nonfinite = rows[0][0], rows[-1][1], sum(row[2] for row in rows), sum(row[3] for row in rows)
    finite = [row for row in rows if row[6] is not None]
    if not finite:
        return first, last, count, nonfinite, None, None, None, None
    total = sum((row[2] - row[3]) * row[6] for row in finite)
    low, high = min(row[4] for row in finite), max(row[5] for row in finite)
    return first, last, count, nonfinite, low, high, total / (count - nonfinite), rows[-1][7]
