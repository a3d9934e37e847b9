"""Converged or not, as a table: curves by noise level to words."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from safelight.diagnosis.convergence import BANDS, HIDDEN, WORTH, progress
from safelight.diagnosis.run_history import InMemoryReadings

Curve = Callable[[np.ndarray], np.ndarray]
LOOKS = np.arange(99, 4000, 100)  # as 40 checkpoints are recorded
STOP = "stopping is reasonable."
LONGER = "train longer."


def flat(steps: np.ndarray) -> np.ndarray:
    return np.full(len(steps), 2.0)


def falling(share: float) -> Curve:
    """By so much of the last one with every doubling; as skill, rising."""
    return lambda steps: 2.0 * (1 + share * np.log2((steps + 1) / 4000))


def until(step: int, share: float = 0.3) -> Curve:
    return lambda steps: falling(share)(np.minimum(steps, step))


def scattered(curve: Curve, size: float, seed: int = 0) -> Curve:
    return lambda steps: curve(steps) * (1 + size * np.random.default_rng(seed).normal(size=len(steps)))


def skills(low: Curve, medium: Curve, high: Curve, steps: np.ndarray = LOOKS) -> dict[str, tuple]:
    curves = dict(zip(BANDS, (low, medium, high), strict=True))
    return {f"skill/level/{n:02d}": (steps, curves[band](steps)) for band, levels in BANDS.items() for n in levels}


def losses(low: Curve, medium: Curve, high: Curve, steps: np.ndarray = LOOKS) -> dict[str, tuple]:
    found = skills(low, medium, high, steps)
    return {name.replace("skill", "loss"): (steps, 5 - values) for name, (steps, values) in found.items()}


def rate(floor: float, decay_at: int = 2000) -> dict[str, tuple]:
    steps = np.arange(4000)
    return {"optimizer/lr": (steps, 0.001 * np.where(steps < decay_at, 1.0, floor))}


UP, GAINS = falling(0.1), falling(0.3)
ROWS = {
    "nothing recorded": ({}, "Too early to say whether the loss has levelled off."),
    "five looks": (skills(UP, UP, UP, LOOKS[:5]), "Too early to say whether the loss has levelled off."),
    "six looks": (skills(UP, UP, UP, LOOKS[:6]), f"Loss still falling at all noise levels: {LONGER}"),
    "falls everywhere": (skills(UP, UP, UP), f"Loss still falling at all noise levels: {LONGER}"),
    "falls at high noise": (
        skills(flat, flat, UP),
        f"Loss still falling at high noise: {LONGER} Loss level at low and medium noise since step 100.",
    ),
    "level from the start": (skills(flat, flat, flat), f"Loss level since step 100: {STOP}"),
    "level since a step": (skills(until(1999), until(1499), until(999)), f"Loss level since step 2,000: {STOP}"),
    "level, with one look that is off": (
        skills(flat, flat, lambda steps: flat(steps) * np.where(steps == 3499, 0.9, 1)),
        f"Loss level since step 100: {STOP}",
    ),
    "gains just enough": (
        skills(*[falling(1.2 * WORTH)] * 3),
        f"Loss still falling at all noise levels: {LONGER}",
    ),
    "gains just too little": (skills(*[falling(0.8 * WORTH)] * 3), f"Loss level since step 1,700: {STOP}"),
    "falls under scatter": (
        skills(*[scattered(GAINS, 0.01)] * 3),
        f"Loss still falling at all noise levels: {LONGER}",
    ),
    "scatter that would hide a fall": (
        skills(flat, flat, scattered(flat, 2 * HIDDEN, seed=1)),
        "Loss level at low and medium noise since step 100. No clear trend at high noise: it fluctuates too much.",
    ),
    "scatter without a trend": (
        skills(flat, flat, lambda steps: flat(steps) + 2 * HIDDEN * (np.arange(len(steps)) % 2)),
        "Loss level at low and medium noise since step 100. No clear trend at high noise: it fluctuates too much.",
    ),
    "rises": (
        skills(falling(-0.1), flat, flat),
        "Loss rising at low noise. Loss level at medium and high noise since step 100.",
    ),
    "a skill around 0": (
        skills(*[lambda steps: falling(0.1)(steps) - 2] * 3),
        f"Loss still falling at all noise levels: {LONGER}",
    ),
    "level because the rate has decayed": (
        skills(*[until(2099)] * 3) | rate(0.05),
        "Loss level since step 2,100, the learning rate has decayed to 5e-05: a longer run may still gain.",
    ),
    "level before the rate decayed": (skills(*[until(999)] * 3) | rate(0.05), f"Loss level since step 1,000: {STOP}"),
    "level with a rate that is lower, not low": (
        skills(*[until(2099)] * 3) | rate(0.4),
        f"Loss level since step 2,100: {STOP}",
    ),
    "falls while the rate decays": (
        skills(UP, UP, UP) | rate(0.05),
        f"Loss still falling at all noise levels: {LONGER}",
    ),
    "watched, by noise level": (
        losses(UP, flat, flat),
        f"Loss still falling at low noise: {LONGER} Loss level at medium and high noise since step 100.",
    ),
    "too few checkpoints, but losses": (
        skills(flat, flat, flat, LOOKS[:3]) | losses(UP, UP, UP),
        f"Loss still falling at all noise levels: {LONGER}",
    ),
    "skill decides over losses": (
        skills(flat, flat, flat) | losses(UP, UP, UP),
        f"Loss level since step 100: {STOP}",
    ),
    "only the loss, falling": (
        {"loss/mean": (np.arange(4000), 5 - scattered(GAINS, 0.05)(np.arange(4000)))},
        f"Loss still falling at all noise levels: {LONGER}",
    ),
    "only the loss, level": (
        {"loss/mean": (np.arange(4000), scattered(flat, 0.02)(np.arange(4000)))},
        f"Loss level since step 32: {STOP}",
    ),
    "only the fixed set": (
        {"probe/raw": (LOOKS, 5 - GAINS(LOOKS))},
        f"Loss still falling at all noise levels: {LONGER}",
    ),
    "steps that cannot be": (
        {"loss/mean": (np.repeat(np.arange(-5, 2000), 2), np.repeat(flat(np.arange(-5, 2000)), 2))},
        f"Loss level since step 16: {STOP}",
    ),
    "what is not finite is left out": (
        {"loss/mean": (np.arange(4000), np.where(np.arange(4000) % 7, flat(np.arange(4000)), math.nan))},
        f"Loss level since step 32: {STOP}",
    ),
}


@pytest.mark.parametrize(("series", "words"), ROWS.values(), ids=ROWS.keys())
def test_progress_in_words(series: dict[str, tuple], words: str) -> None:
    assert progress(InMemoryReadings(series)).words() == words


def test_nothing_is_advised_while_something_is_wrong() -> None:
    for series, _ in ROWS.values():
        found, silent = (progress(InMemoryReadings(series), advises=each).words() for each in (True, False))
        assert (silent != found) == any(each in found for each in (LONGER, STOP, "a longer run may"))
        assert not any(each in silent for each in (LONGER, STOP, "a longer run may"))


def test_a_level_curve_is_seldom_called_falling() -> None:
    """Scatter of one percent: more than raw weights have at a rate that is not too high."""
    names = [f"skill/level/{level:02d}" for level in BANDS["high noise"]]
    found = [
        progress(
            InMemoryReadings(
                {name: (LOOKS, scattered(flat, 0.01, 16 * seed + n)(LOOKS)) for n, name in enumerate(names)}
            )
        )
        for seed in range(300)
    ]
    states = [each.bands[0].state for each in found]
    assert states.count("falling") <= 6
    assert states.count("level") >= 240


def test_progress_as_json() -> None:
    found = progress(InMemoryReadings(skills(flat, flat, UP) | rate(0.05))).to_json()
    assert found["signal"] == "skill/level"
    assert found["learning_rate"] == 5e-5
    assert [(each["name"], each["state"], each["since"]) for each in found["bands"]] == [
        ("low noise", "level", 100), ("medium noise", "level", 100), ("high noise", "falling", None)]  # fmt: skip
