"""The time of each step, as far as the record has it, for charts over time."""

from __future__ import annotations

from typing import Any

import numpy as np

from safelight.pages.data.numbers import whole
from safelight.pages.data.run_state import RunStatus
from safelight.record.history import History
from safelight.vocabulary import SPEED

ANCHORS, MOST_EVENTS = 300, 2000


def clock(history: History, run_status: RunStatus | None, batch_size: int | None) -> dict[str, list[Any]] | None:
    """{"step": [...], "time": [unix seconds]}, both rising; None if no time is known at all.

    Events have a time each; between them, the speed says how the time is shared out among the steps.
    """
    ticks = _known(history, run_status)
    if not ticks:
        return None
    steps, times = (np.array(column, np.float64) for column in zip(*ticks, strict=True))
    spans = history.zoom(SPEED.name, pixels=ANCHORS // 4)
    fine = np.unique(np.concatenate([steps, spans.last.astype(np.float64)]))
    effort = _effort(fine, spans.last, spans.mean, batch_size)
    done = np.interp(steps, fine, effort)  # up to the steps whose times are known
    found = np.interp(effort, done, np.maximum.accumulate(times)) + np.maximum(effort - done[-1], 0.0)
    chosen = np.unique(np.linspace(0, len(fine) - 1, min(len(fine), ANCHORS)).round().astype(int))
    return {"step": whole(fine[chosen]), "time": np.round(np.maximum.accumulate(found)[chosen], 2).tolist()}


def _known(history: History, run_status: RunStatus | None) -> list[tuple[int, float]]:
    """(step, time), one for each step, in order."""
    pairs: dict[int, float] = {}
    for note in history.events(most=MOST_EVENTS):
        if isinstance(note.step, int) and isinstance(note.time, int | float) and 0 < note.time < 1e11:
            pairs.setdefault(note.step, float(note.time))
    if run_status is not None and run_status.heartbeat is not None and run_status.step:
        pairs.setdefault(run_status.step - 1, run_status.heartbeat)
    return sorted(pairs.items())


def _effort(steps: np.ndarray, at: np.ndarray, speed: np.ndarray, batch_size: int | None) -> np.ndarray:
    """Seconds of training up to each step, by the speed that was measured."""
    good = np.isfinite(speed) & (speed > 0)
    if not good.any() or not batch_size:
        return steps - steps[0]
    pace = batch_size / np.interp(steps, at[good], speed[good])
    return np.concatenate([[0.0], np.cumsum(np.diff(steps) * (pace[1:] + pace[:-1]) / 2)])
