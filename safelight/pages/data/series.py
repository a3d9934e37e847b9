"""Curves and heatmap: signals over a range of steps in about a span per pixel, and what is new since a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from safelight.pages.data.numbers import plain, whole
from safelight.record.history import History
from safelight.record.smoothing import exponential_mean
from safelight.record.zoom import Zoom, from_rows
from safelight.vocabulary import LOSS_AT_LEVEL, Signal

MOST_PIXELS, MOST_NEW = 4000, 4096
MEMORY = 24  # half-lives after which a reading weighs less than a ten-millionth
FINENESS = 16  # spans of a trend in one half-life: its error is far below the noise of the curve
LEVELS = 16  # of noise
LOOK_BACK = 256  # steps in which a signal that is not measured at every step may still be late


def series(
    history: History,
    names: Sequence[str],
    first: int | None = None,
    last: int | None = None,
    pixels: int = 800,
    smooth: float = 0.0,
) -> dict[str, Any]:
    """Spans of each signal, at most `pixels` of them; `smooth` is the half-life in steps of an added trend."""
    pixels = max(8, min(pixels, MOST_PIXELS))
    curves = {name: _curve(history, name, first, last, pixels, smooth) for name in dict.fromkeys(names)}
    present = {name: curve for name, curve in curves.items() if curve is not None}
    starts = [curve["x"][0] for curve in present.values() if curve["x"]]
    ends = [curve["end"][-1] for curve in present.values() if curve["end"]]
    return {
        "series": present,
        "first": first if first is not None else min(starts, default=None),
        "last": last if last is not None else max(ends, default=None),
    }


def _spans_on_grid(history: History, name: str, low: int, high: int, width: int) -> Zoom:
    """No span reaches over a multiple of `width`, a power of two."""
    return _merged(history.zoom(name, low, high, pixels=max(1, (high - low + 1) // width)), width)


def _grid_width(low: int, high: int, pixels: int) -> int:
    """The least power of two whose multiples cut the range into at most so many pieces."""
    width = 1
    while high // width - low // width + 1 > pixels:
        width *= 2
    return width


def _merged(spans: Zoom, width: int) -> Zoom:
    """Neighbours in one piece of the grid become one; lowest, highest and what is not finite are kept."""
    piece = spans.first // width
    starts = np.flatnonzero(np.diff(piece, prepend=piece[:1] - 1))
    if len(starts) == len(piece):
        return spans
    ends = np.append(starts[1:], len(piece)) - 1
    kept = spans.count - spans.nonfinite
    total = np.add.reduceat(np.where(kept > 0, spans.mean * kept, 0.0), starts)
    count, nonfinite, kept = (np.add.reduceat(column, starts) for column in (spans.count, spans.nonfinite, kept))
    low, high = np.fmin.reduceat(spans.low, starts), np.fmax.reduceat(spans.high, starts)
    mean = np.where(kept > 0, total / np.maximum(kept, 1), np.nan)
    return Zoom(spans.first[starts], spans.last[ends], count, nonfinite, low, high, mean, spans.latest[ends])


def _curve(
    history: History, name: str, first: int | None, last: int | None, pixels: int, smooth: float
) -> dict[str, Any] | None:
    ends = history.ends(name)
    if ends is None:
        return None
    low = ends[0] if first is None else max(first, ends[0])
    high = ends[1] if last is None else min(last, ends[1])
    width = _grid_width(low, high, pixels)  # a grid that stays where it is while the run goes on
    spans = _spans_on_grid(history, name, low, high, width) if low <= high else from_rows([])
    found: dict[str, Any] = {
        "x": whole(spans.first),
        "end": whole(spans.last),
        "low": plain(spans.low),
        "high": plain(spans.high),
        "mean": plain(spans.mean),
        "nonfinite": whole(spans.nonfinite),
    }
    if smooth > 0:
        found["smooth"] = plain(trend(history, name, spans.last, smooth)) if len(spans) else []
    return found


def trend(history: History, name: str, at: np.ndarray, half_life: float) -> np.ndarray:
    """The debiased exponential mean at some steps. It is taken from spans whose width depends on the half-life alone,
    and begins long before the range: so a step has the same value at every zoom."""
    width = 1
    while width * 4 * FINENESS <= half_life:
        width *= 4
    ends = history.ends(name) or (0, -1)
    low = max(ends[0], int(at[0] - MEMORY * half_life) // width * width)
    # The span that the last step lies in is whole, as it is where more is seen.
    high = min(ends[1], (int(at[-1]) // width + 2) * width - 1)
    if width == 1:
        steps, numbers = history.raw(name, low, high)
        means = exponential_mean(steps, numbers, half_life)
    else:
        spans = history.zoom(name, low, high, pixels=max(1, (high - low + 1) // width))
        steps, means = spans.last, exponential_mean(spans.last, spans.mean, half_life, spans.count - spans.nonfinite)
    finite = np.isfinite(means)
    if not finite.any():
        return np.full(len(at), np.nan)
    return np.interp(at, steps[finite], means[finite])


def heatmap(
    history: History,
    first: int | None = None,
    last: int | None = None,
    pixels: int = 400,
    family: Signal = LOSS_AT_LEVEL,
) -> dict[str, Any]:
    """The loss or the skill by noise level: a column for each span, a row for each level, 0 with the least noise. None
    where a level had no reading, or none that is finite."""
    pixels = max(8, min(pixels, MOST_PIXELS))
    names = [f"{family.name}/{level:02d}" for level in range(LEVELS)]
    ends = [end for end in map(history.ends, names) if end is not None]
    low = max(min((end[0] for end in ends), default=0), 0 if first is None else first)
    high = min(max((end[1] for end in ends), default=-1), (1 << 62) if last is None else last)
    if high < low:
        return {"levels": LEVELS, "x": [], "end": [], "values": []}
    width = _grid_width(low, high, pixels)
    levels = [_spans_on_grid(history, name, low, high, width) for name in names]
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


def delta(history: History, names: Sequence[str], after: int) -> dict[str, Any]:
    """Readings since a step, for a page that knows all up to it.

    Some come late: an evaluation belongs to a step that was sent before. So the step itself is sent again, and a
    few more of signals that are not measured at every step; a page leaves out what it has.
    """
    ends = {name: history.ends(name) for name in dict.fromkeys(names)}
    tip = max((end[1] for end in ends.values() if end is not None), default=after)
    since = {name: after - 1 if end[1] >= tip else after - LOOK_BACK for name, end in ends.items() if end is not None}
    found = newer(history, since)
    return found | {"cursor": tip, "reset": found["reset"] or tip < after}


def newer(history: History, since: Mapping[str, int]) -> dict[str, Any]:
    """Readings of each signal beyond a step of its own; `reset` where there are more than a page should be sent."""
    news = history.since(since, MOST_NEW)
    sent = {name: {"x": whole(each[0]), "y": plain(each[1])} for name, each in news.items() if each and len(each[0])}
    return {"series": sent, "reset": None in news.values()}
