"""Whether the samples of a run get better: the newest distance from real images, and the best step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from safelight.pages.data.numbers import as_dict, as_float, as_int, as_str
from safelight.record.history import History
from safelight.vocabulary import DISTANCE, DISTANCE_ERROR
from safelight.words import with_error


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
        shown = with_error(max(self.value, 0.0), self.error or 0.0)
        if self.better is None or self.against is None:
            return f"{self.label} {shown}"
        change = " and improving" if self.better else f", no better than at step {self.against:,}"
        return f"{self.label} {shown}{change}"


def newest_distance(history: History) -> LatestDistance | None:
    last = history.last(DISTANCE.name)
    if last is None or not math.isfinite(last[1]):
        return None
    error = history.last(DISTANCE_ERROR.name)
    facts = as_dict(next((note.facts for note in history.events("evaluated", most=1)), None))
    against = as_dict(facts.get("against"))
    better = against.get("better")
    return LatestDistance(
        label=as_str(facts.get("label"), 40) or "distance",
        value=last[1],
        error=error[1] if error is not None and math.isfinite(error[1]) else None,
        step=last[0] + 1,
        against=as_int(against.get("step")),
        better=better if isinstance(better, bool) else None,
    )


def best_step(history: History, facts: Mapping[str, Any]) -> int | None:
    """Completed steps of the best checkpoint: as the run chose it, else by the evaluations so far."""
    for chosen in (as_int(as_dict(facts.get("evaluation")).get("step")), as_int(facts.get("best_step"))):
        if chosen is not None:
            return chosen
    best: int | None = None
    for facts in (as_dict(note.facts) for note in history.events("evaluated", most=1000)):
        against = facts.get("against")
        if best is None or not isinstance(against, dict) or against.get("better") is True:
            best = as_int(facts.get("after")) or best
    return best


def distance_of(history: History, facts: Mapping[str, Any]) -> list[float | int | None] | None:
    """[value, error, step]: of the newest evaluation; at the end of a run of its best checkpoint on fresh noise, as the
    last screen has it."""
    found = best_distance(facts) or newest_distance(history)
    return None if found is None else [as_float(max(found.value, 0.0)), as_float(found.error), found.step]


def distance_name(history: History, facts: Mapping[str, Any]) -> str | None:
    """What that distance is called: FID, FD-lite0."""
    found = best_distance(facts) or newest_distance(history)
    return None if found is None else found.label


def best_distance(facts: Mapping[str, Any]) -> LatestDistance | None:
    """The distance of the best checkpoint on fresh noise, which it was not chosen by; `facts` of run.json."""
    scored = as_dict(facts.get("evaluation"))
    value, step = as_float(scored.get("distance")), as_int(scored.get("step"))
    if value is None or step is None:
        return None
    label = as_str(scored.get("label"), 40) or "distance"
    return LatestDistance(label, value, as_float(scored.get("error")), step, None, None)
