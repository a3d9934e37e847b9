"""A learning rate that begins anew in the middle of its schedule, as after a resume that did not load it."""

from __future__ import annotations

import numpy as np

STEP = 0.1  # of the highest rate: a change from one reading to the next that no schedule makes on its way
MIN_READINGS = 10  # readings after it, and before it, that are compared
SAME_RATE_SHARE = 0.01  # of the highest rate: by which the two beginnings may differ
VARIES = 0.02  # of the highest rate: a constant rate has no beginning to recognise
ENDED_RATE_SHARE = 0.1  # of the highest rate: below, a cycle may begin on purpose
# Of the steepest change, of the highest rate: the bottom of a cosine that does not end at 0
FLAT_SLOPE_SHARE, BOTTOM_RATE_SHARE = 0.2, 0.9
OFFSETS = 64  # places between two readings where it may have begun


def begins_anew(steps: np.ndarray, rates: np.ndarray) -> int | None:
    """The place from which on the rates are those of the beginning, though the schedule before had not ended."""
    highest = float(rates.max(initial=0.0))
    if not np.isfinite(rates).all() or not highest > 0:
        return None
    places = np.flatnonzero(np.abs(np.diff(rates)) > STEP * highest) + 1
    found = [int(place) for place in places if _is_anew(steps, rates, int(place), highest)]
    return found[-1] if len(found) == 1 else None  # cycles are meant


def _is_anew(steps: np.ndarray, rates: np.ndarray, place: int, highest: float) -> bool:
    count = min(place, len(rates) - place)
    first, before = rates[:count], float(rates[place - 1])
    if count < MIN_READINGS or np.ptp(first) < VARIES * highest or before < ENDED_RATE_SHARE * highest:
        return False
    peak = place - 1 - int(rates[:place][::-1].argmax())  # the last one
    changes = np.abs(np.diff(rates[peak:place])) / np.diff(steps[peak:place])
    at_bottom = before < BOTTOM_RATE_SHARE * highest and before <= float(rates[peak:place].min())
    if at_bottom and len(changes) and changes[-1] < FLAT_SLOPE_SHARE * changes.max():
        return False
    begun = np.unique(np.linspace(steps[place - 1] + 1, steps[place], OFFSETS).astype(np.int64))
    at = steps[place : place + count]
    offsets = steps[:place] - steps[0]
    return any(
        float(np.abs(np.interp(at - begin, offsets, rates[:place]) - rates[place : place + count]).max())
        < SAME_RATE_SHARE * highest
        for begin in begun
    )
