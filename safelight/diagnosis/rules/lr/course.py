"""The course of the rate itself: 0, ended too early, jumping, beginning again."""

from __future__ import annotations

import numpy as np

from safelight.diagnosis.finding import Evidence
from safelight.diagnosis.rate_shapes import begins_anew
from safelight.diagnosis.rule import Detection
from safelight.diagnosis.run_history import RunHistory, episode_of
from safelight.vocabulary import LEARNING_RATE

JUMP_FACTOR, ENDED_RATE_SHARE = 5.0, 1e-3
LONG_STEPS = 50
MIN_ZERO_RATES, MIN_RATES = 5, 12  # readings of a rate


def zero(run: RunHistory) -> Detection | None:
    steps, rates = run.series(LEARNING_RATE)
    zeros = episode_of(steps, rates == 0, MIN_ZERO_RATES)
    if zeros is None or zeros.ended_at is not None:
        return None
    if int(steps[-1]) - zeros.first >= LONG_STEPS and zeros.looks < len(rates):
        return None  # a schedule that has ended is another cause
    return Detection(
        zeros.first,
        f"The learning rate is 0 since step {zeros.first:,}: nothing is learnt.",
        (Evidence(LEARNING_RATE.name, 0.0, (zeros.first, zeros.last), "above 0"),),
    )


def ended_early(run: RunHistory) -> Detection | None:
    steps, rates = run.series(LEARNING_RATE)
    if len(rates) < LONG_STEPS or not rates.max() > 0:
        return None
    low = episode_of(steps, rates < ENDED_RATE_SHARE * np.quantile(rates, 0.98))  # not of a single jump
    if low is None or low.ended_at is not None or low.looks == len(rates):
        return None
    length, whole = (int(steps[-1]) - first + 1 for first in (low.first, int(steps[0])))  # a log may leave out steps
    if length < max(20, 0.15 * whole):
        return None
    return Detection(
        low.first,
        f"The learning rate fell below a thousandth of its highest at step {low.first:,}, and the training continued "
        f"for {length:,} steps: its schedule was stepped too often, or made for a shorter run.",
        (Evidence(LEARNING_RATE.name, float(rates[-1]), (low.first, low.last)),),
        ("a cosine that ends with the run: it spends 2 % of its length so low",),
    )


def jump(run: RunHistory) -> Detection | None:
    """Restarts return to an earlier rate; this is higher than ever before."""
    steps, rates = run.series(LEARNING_RATE)
    if len(rates) < MIN_RATES:
        return None
    highest = np.maximum.accumulate(rates)
    # After longer gaps it may be a warm-up.
    risen = (rates[1:] > JUMP_FACTOR * highest[:-1]) & (highest[:-1] > 0) & (np.diff(steps) < LONG_STEPS)
    jumps = np.flatnonzero(risen & (np.arange(1, len(rates)) >= 10))
    if not len(jumps):
        return None
    place = int(jumps[-1]) + 1
    back, apart = np.flatnonzero(rates[place:] <= highest[place - 1]), int(steps[place] - steps[place - 1])
    return Detection(
        int(steps[place]),
        f"At step {int(steps[place]):,} the learning rate went from {rates[place - 1]:.2g} to {rates[place]:.2g} in "
        + ("one step." if apart == 1 else f"{apart} steps."),
        (Evidence(LEARNING_RATE.name, float(rates[place]), (int(steps[place]), int(steps[place]))),),
        ("warm-up and restarts: they rise by less, or no higher than before",),
        ended_at=int(steps[place + back[0]]) if len(back) else None,
    )


def anew(run: RunHistory) -> Detection | None:
    """Exact but for the digits of a log: the rates are those of the beginning, once more."""
    steps, rates = run.series(LEARNING_RATE)
    place = begins_anew(steps, rates)
    if place is None:
        return None
    at, before = int(steps[place]), float(rates[place - 1])
    return Detection(
        at,
        f"At step {at:,} the learning rate began again as at the first step: it went from {before:.2g} to "
        f"{rates[place]:.2g}, in the middle of its schedule.",
        (Evidence(LEARNING_RATE.name, float(rates[place]), (at, at), f"about {before:.2g}"),),
        ("restarts that are meant: they come when the rate is at its lowest, and again",),
        confidence=0.99,
    )
