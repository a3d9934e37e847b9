"""A curve in one line of text."""

from __future__ import annotations

import numpy as np

from safelight.record.zoom import Zoom

BLOCKS = "▁▂▃▄▅▆▇█"
MARK = "×"  # something here is not finite


def draw(spans: Zoom, columns: int) -> str:
    """One sign per column of steps: the mean as a block, or a mark where anything is not finite; a space where none."""
    if not len(spans):
        return ""
    middle = (spans.first + spans.last) / 2
    start, end = int(spans.first[0]), int(spans.last[-1])
    columns = min(columns, end - start + 1)
    place = np.minimum(((middle - start) * columns / (end - start + 1)).astype(int), columns - 1)
    kept = spans.count - spans.nonfinite
    weight = np.bincount(place, kept, columns)
    total = np.bincount(place, np.where(kept > 0, spans.mean * kept, 0), columns)
    sick = np.bincount(place, spans.nonfinite, columns) > 0
    mean = np.where(weight > 0, total / np.maximum(weight, 1), np.nan)
    low, high = (np.nanmin(mean), np.nanmax(mean)) if (weight > 0).any() else (0.0, 0.0)
    share = np.where(weight > 0, (mean - low) / (high - low), 0) if high > low else np.zeros(columns)
    heights = np.minimum((share * len(BLOCKS)).astype(int), len(BLOCKS) - 1)
    return "".join(
        MARK if bad else BLOCKS[height] if some else " "
        for bad, height, some in zip(sick.tolist(), heights.tolist(), (weight > 0).tolist(), strict=True)
    )
