"""The loss by noise level over steps: a column per span, a row per level."""

from __future__ import annotations

from typing import Any

import numpy as np

from safelight.pages.data.numbers import plain
from safelight.pages.data.series import MOST_PIXELS, grid_width, spans_on_grid
from safelight.record.history import History
from safelight.vocabulary import LOSS_AT_LEVEL

LEVELS = 16


def heatmap(history: History, first: int | None = None, last: int | None = None, pixels: int = 400) -> dict[str, Any]:
    """Level 0 has the least noise. None where a level had no reading, or none that is finite."""
    pixels = max(8, min(pixels, MOST_PIXELS))
    names = [f"{LOSS_AT_LEVEL.name}/{level:02d}" for level in range(LEVELS)]
    ends = [end for end in map(history.ends, names) if end is not None]
    low = max(min((end[0] for end in ends), default=0), 0 if first is None else first)
    high = min(max((end[1] for end in ends), default=-1), (1 << 62) if last is None else last)
    if high < low:
        return {"levels": LEVELS, "x": [], "end": [], "values": []}
    width = grid_width(low, high, pixels)
    levels = [spans_on_grid(history, name, low, high, width) for name in names]
    pieces = np.unique(np.concatenate([spans.first // width for spans in levels]))
    begin, until = np.full(len(pieces), 1 << 62), np.zeros(len(pieces), np.int64)
    values = np.full((len(pieces), LEVELS), np.nan)
    for level, spans in enumerate(levels):
        places = np.searchsorted(pieces, spans.first // width)
        values[places, level] = spans.mean
        begin[places], until[places] = np.minimum(begin[places], spans.first), np.maximum(until[places], spans.last)
    flat = plain(values.ravel())
    columns = [flat[place : place + LEVELS] for place in range(0, len(flat), LEVELS)]
    return {"levels": LEVELS, "x": begin.tolist(), "end": until.tolist(), "values": columns}
