"""What is true of a set as a whole, found out while it is prepared: sizes, levels, copies, blanks, classes, losses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from safelight.config.tree import Data
from safelight.data.decode import FORMATS
from safelight.data.rows import GREY, TRANSPARENT, TURNED

MARKS = {"grey": GREY, "transparent": TRANSPARENT, "turned": TURNED}
BLANK_DEVIATION = 2.0  # levels: below this an image is one colour, but for the noise of its compression
CROPPED_SHARE = 0.25  # of a picture's area: losing more is reported
EXTREMES = 12  # rows that are kept of each kind
MAX_NAMED_SIZES = 5  # sizes that are named
PART = 4096


def find_facts(
    rows: np.ndarray,
    shape: tuple[int, int, int],
    labels: np.ndarray | None,
    names: tuple[str, ...],
    near: np.ndarray,
    data: Data,
) -> dict[str, Any]:
    """Counts, and a few rows of each kind to look at. Levels are 0 to 255.

    `shape`: images, side, channels; `names`: what the labels stand for; `near`: pairs that look alike.
    """
    count, side, channels = shape
    width, height = rows["width"].astype(np.int64), rows["height"].astype(np.int64)
    deviation = deviations(rows, side)
    duplicates, groups, two = _copies(rows, labels)
    short = np.minimum(width, height)
    lost = 1 - short / np.maximum(width, height) if data.fit == "crop" else np.zeros(count)
    blank = np.flatnonzero(deviation < BLANK_DEVIATION)
    brightness = rows["total"].sum(1)
    classes = np.bincount(labels, minlength=len(names)).tolist() if labels is not None else []
    kinds = np.bincount(rows["format"], minlength=len(FORMATS) + 1)
    mean, std = _levels(rows, side * side, channels)
    return {
        "images": count,
        "side": side,
        "channels": channels,
        "file_bytes": int(rows["bytes"].sum()),
        "widths": _spread(width),  # smallest, median, largest
        "heights": _spread(height),
        "common_sizes": _common(width, height),  # width, height, images
        "formats": {name: int(n) for name, n in zip(FORMATS, kinds, strict=False) if n},
        **{name: int((rows["marks"] & mark != 0).sum()) for name, mark in MARKS.items()},
        "mean": mean,
        "std": std,
        "low": int(rows["low"].min()),
        "high": int(rows["high"].max()),
        "classes": dict(zip(names, classes, strict=True)) if labels is not None else {},
        "duplicates": duplicates,  # images that another one equals, beyond the first of each
        "duplicate_rows": groups,
        "in_two_classes": two,  # copies of one picture under different labels
        "near": len(near),  # pairs that look alike
        "near_rows": near[:EXTREMES].tolist(),
        "blank": len(blank),
        "blank_rows": blank[:EXTREMES].tolist(),
        "enlarged": int((short < data.image_size).sum()),  # pictures smaller than the size they are trained at
        "lost": float(lost.mean()),  # share of their area that pictures lose on average by cropping
        "much_lost": int((lost > CROPPED_SHARE).sum()),
        "extremes": {
            "darkest": _first(brightness),
            "brightest": _first(-brightness.astype(np.int64)),
            "flattest": _first(deviation),
            "widest": _first(height / width),
            "tallest": _first(width / height),
            "smallest": _first(width * height),
        },
    }


def deviations(rows: np.ndarray, side: int) -> np.ndarray:
    """Standard deviation of each image over its pixels, the largest of its channels."""
    pixels, found = side * side, np.empty(len(rows), np.float32)
    for part in parts(len(rows)):
        mean = rows["total"][part] / pixels
        found[part] = np.sqrt(np.maximum(rows["squares"][part] / pixels - mean**2, 0)).max(1)
    return found


def parts(count: int) -> Iterator[slice]:
    """A few thousand rows at a time: what is computed on the way must not grow with the set."""
    return (slice(start, start + PART) for start in range(0, count, PART))


def _levels(rows: np.ndarray, pixels: int, channels: int) -> tuple[list[float], list[float]]:
    """Exact: whole numbers are added, and only the last division rounds."""
    total = [int(n) for n in rows["total"].sum(0)][:channels]
    squares = [int(n) for n in rows["squares"].sum(0)][:channels]
    count = len(rows) * pixels
    mean = [n / count for n in total]
    return mean, [max(0.0, s / count - m * m) ** 0.5 for s, m in zip(squares, mean, strict=True)]


def _copies(rows: np.ndarray, labels: np.ndarray | None) -> tuple[int, list[list[int]], int]:
    """Images that an earlier one equals, the largest groups, and how many groups stand under several labels."""
    content = rows["content"]
    order = np.lexsort((content[:, 1], content[:, 0]))
    first = np.ones(len(order), np.bool_)  # of its group
    for part in parts(len(order) - 1):
        first[1:][part] = (content[order[1:][part]] != content[order[:-1][part]]).any(1)
    starts = np.flatnonzero(first)
    sizes = np.diff(np.append(starts, len(order)))
    largest = [place for place in np.argsort(-sizes, kind="stable")[:EXTREMES] if sizes[place] > 1]
    groups = [np.sort(order[starts[p] : starts[p] + sizes[p]])[:EXTREMES].tolist() for p in largest]
    two = 0
    if labels is not None:
        named = labels[order]
        two = int((np.minimum.reduceat(named, starts) != np.maximum.reduceat(named, starts)).sum())
    return len(order) - len(starts), groups, two


def _spread(values: np.ndarray) -> tuple[int, int, int]:
    return int(values.min()), int(np.median(values)), int(values.max())


def _common(width: np.ndarray, height: np.ndarray) -> list[tuple[int, int, int]]:
    sizes, counts = np.unique(width << 32 | height, return_counts=True)
    most = np.argsort(-counts, kind="stable")[:MAX_NAMED_SIZES]
    return [(int(sizes[i]) >> 32, int(sizes[i]) & 0xFFFFFFFF, int(counts[i])) for i in most]


def _first(values: np.ndarray) -> list[int]:
    """Rows of the smallest values; what half of the set has too is not extreme."""
    order = np.argsort(values, kind="stable")[:EXTREMES]
    return order[values[order] < np.median(values)].tolist()
