"""Whether the samples of a run get better: the newest distance from real images, and the best step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from safelight.pages.data.numbers import count, mapping, number, text
from safelight.record.history import History
from safelight.vocabulary import DISTANCE, DISTANCE_ERROR


@dataclass(frozen=True, slots=True)
class LatestDistance:
    """The newest evaluation."""

    label: str
    value: float
    error: float | None
    step: int
    """Completed steps."""
    against: int | None
    """Completed steps of the best one before it."""
    better: bool | None

    def words(self) -> str:
        shown = f"{self.value:.3g}" if self.error is None else _with_error(self.value, self.error)
        if self.better is None or self.against is None:
            return f"{self.label} {shown}"
        change = " and improving" if self.better else f", no better than at step {self.against:,}"
        return f"{self.label} {shown}{change}"


def newest_distance(history: History) -> LatestDistance | None:
    last = history.last(DISTANCE.name)
    if last is None or not math.isfinite(last[1]):
        return None
    error = history.last(DISTANCE_ERROR.name)
    facts = mapping(next((note.facts for note in history.events("evaluated", most=1)), None))
    against = mapping(facts.get("against"))
    better = against.get("better")
    return LatestDistance(
        label=text(facts.get("label"), 40) or "distance",
        value=last[1],
        error=error[1] if error is not None and math.isfinite(error[1]) else None,
        step=last[0] + 1,
        against=count(against.get("step")),
        better=better if isinstance(better, bool) else None,
    )


def best_step(history: History, evaluation: Any) -> int | None:
    """Completed steps of the best checkpoint: as chosen at the end, else by the evaluations so far."""
    chosen = count(mapping(evaluation).get("step"))
    if chosen is not None:
        return chosen
    best: int | None = None
    for facts in (mapping(note.facts) for note in history.events("evaluated", most=1000)):
        against = facts.get("against")
        if best is None or not isinstance(against, dict) or against.get("better") is True:
            best = count(facts.get("after")) or best
    return best


def distance_of(history: History) -> list[float | int | None] | None:
    """[value, error, step] for a list of runs."""
    found = newest_distance(history)
    return None if found is None else [number(found.value), number(found.error), found.step]


def _with_error(value: float, error: float) -> str:
    """31 ± 2, 0.05 ± 0.15: as many digits as the error allows, one more where it begins with a 1."""
    size = math.floor(math.log10(error)) if error > 0 else 0
    places = min(max(0, (error < 2 * 10.0**size) - size), 4)
    return f"{value:.{places}f} ± {error:.{places}f}"
