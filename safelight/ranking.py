"""Which of several runs is better, and whether the difference is more than chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from safelight.words import with_error

LEVEL = 0.05  # of the test, shared by all pairs with the best


@dataclass(frozen=True, slots=True)
class Result:
    """What a run has come to."""

    name: str
    step: int | None = None
    data: str | None = None
    """Fingerprint of its images: only numbers of the same images are compared."""
    label: str | None = None
    """What its distance is called: FID, FD-lite0."""
    distance: float | None = None
    error: float | None = None
    skill: float | None = None


def rank(results: Sequence[Result]) -> dict[str, Any]:
    """{"sentence", "best": place of the better one or None, "p": of the difference to the next, or None}."""
    said, best, p = _by_distance(results) or _by_skill(results) or (_nothing(results), None, None)
    return {"sentence": f"{said}{_steps(results)}", "best": best, "p": p}


def _by_distance(results: Sequence[Result]) -> tuple[str, int | None, float | None] | None:
    """By the distance from real images; a smaller one is better."""
    measured = [place for place, each in enumerate(results) if each.distance is not None and each.error]
    if len(measured) < 2 or len(measured) < len(results) or len({(each.label, each.data) for each in results}) > 1:
        return None
    order = sorted(measured, key=lambda place: results[place].distance or 0.0)
    first, second = results[order[0]], results[order[1]]
    p = p_value(first, second)
    if len(results) == 2:
        numbers = f"{first.label} {_words(first)} against {_words(second)}, {p_words(p)}"
        if p < LEVEL:
            return f"{first.name} is better than {second.name}: {numbers}.", order[0], p
        return f"No clear difference between {first.name} and {second.name}: {numbers}.", None, p
    limit = LEVEL / (len(results) - 1)
    worse = [place for place in order[1:] if p_value(first, results[place]) < limit]
    alike = [place for place in order[1:] if place not in worse]
    ranked = ", ".join(f"{results[place].name} {_words(results[place])}" for place in order)
    if not alike:
        return f"{first.name} is the best of {len(results)}. {first.label}: {ranked}.", order[0], p
    names = ", ".join(results[place].name for place in alike)
    lead = f"{first.name} is ahead, but not clearly better than {names}" if worse else "No clear difference"
    return f"{lead}. {first.label}: {ranked}.", None, p


def _by_skill(results: Sequence[Result]) -> tuple[str, int | None, float | None] | None:
    """By skill on the fixed set, which has no error bar: one number of one seed."""
    if any(each.skill is None for each in results) or len({each.data for each in results}) > 1 or len(results) < 2:
        return None
    order = sorted(range(len(results)), key=lambda place: -(results[place].skill or 0.0))
    ranked = " against ".join(f"{results[place].skill:.2f} ({results[place].name})" for place in order)
    return (
        f"Skill on the fixed set: {ranked}. It has no error bar: `safelight evaluate` measures samples with one.",
        None,
        None,
    )


def _nothing(results: Sequence[Result]) -> str:
    if len({each.data for each in results}) > 1:
        return "These runs were trained on different images or sizes: their numbers cannot be compared."
    lacking = ", ".join(each.name for each in results if each.distance is None)
    why = f"{lacking} has no evaluation" if lacking else "they were evaluated in different ways"
    return f"Which one is better is not known: {why}. `safelight evaluate RUN` measures the samples of a run."


def _steps(results: Sequence[Result]) -> str:
    steps = [each.step for each in results]
    if None in steps or len(set(steps)) < 2:
        return ""
    counts = ", ".join(f"{each.name} {each.step:,}" for each in results)
    return f" Their steps differ: {counts}."


def p_value(one: Result, other: Result) -> float:
    """Of a difference that is at least as large, if there is none: two-sided, of two independent normal errors."""
    apart = abs((one.distance or 0.0) - (other.distance or 0.0))
    return math.erfc(apart / math.hypot(one.error or 0.0, other.error or 0.0) / math.sqrt(2))


def p_words(p: float) -> str:
    return "p < 0.0001" if p < 1e-4 else f"p = {p:.2g}"


def _words(result: Result) -> str:
    return with_error(max(result.distance or 0.0, 0.0), result.error or 0.0)
