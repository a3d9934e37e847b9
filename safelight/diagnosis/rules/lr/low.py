"""Rates so low that updates gain nearly nothing."""

from __future__ import annotations

import numpy as np

from safelight import checks
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.rule import Detection
from safelight.diagnosis.run_history import RunHistory
from safelight.vocabulary import LEARNING_RATE
from safelight.words import round_rate

# An update gains too little above the first ratio, if one a hundred times as long is below the second
NO_GAIN_RATIO, LONG_GAIN_RATIO = 0.98, 0.999
LONGER_UPDATES = ("10", "100", "10000", "1000000")
# Times more gain by a hundredfold update than by a tenfold one: the loss still falls in a straight line
STRAIGHT_GAIN_FACTOR = 5.0
SEARCHES = 4  # along the updates of at least 30 steps
UNLEARNT_ERROR_SHARE = 0.6  # error over that of the zero predictor: above it, there is something left to learn
USUAL_RATE = 1e-5  # of Adam, in published recipes: 1e-5 to 2e-3
MOVED_ENOUGH = 0.5  # of the error, by all updates of a run together


def too_low(run: RunHistory) -> Detection | None:
    steps, ratio_full = run.series(checks.LINE_SEARCH_RATIO["1"])
    ratio_tenfold, ratio_hundredfold = (run.at(checks.LINE_SEARCH_RATIO[length], steps) for length in ("10", "100"))
    rates, starts, zeros = (
        run.at(check, steps) for check in (checks.LINE_SEARCH_RATE, checks.LINE_SEARCH_START, checks.LINE_SEARCH_ZERO)
    )
    if len(ratio_full) < 4 or steps[-1] - steps[0] < 30:
        return None
    risen = np.concatenate([[True], rates[1:] > 1.2 * np.maximum.accumulate(rates)[:-1]])
    straight = (1 - ratio_hundredfold) > STRAIGHT_GAIN_FACTOR * (1 - ratio_tenfold)
    lengths = np.full(len(steps), 100)
    for length in ("10000", "1000000"):  # a rate so low that even a hundredfold update gains nothing
        farther = run.at(checks.LINE_SEARCH_RATIO[length], steps)
        lower = (ratio_hundredfold > LONG_GAIN_RATIO) & (ratio_hundredfold < 1.001) & (farther < LONG_GAIN_RATIO)
        ratio_hundredfold, straight = np.where(lower, farther, ratio_hundredfold), straight | lower
        lengths = np.where(lower, int(length), lengths)
    hit = (
        (ratio_full > NO_GAIN_RATIO)
        & (ratio_hundredfold < LONG_GAIN_RATIO)
        & (ratio_tenfold < 1.001)
        & straight
        & (starts > UNLEARNT_ERROR_SHARE * zeros)
        & ~risen
    )
    hit &= steps - steps[0] >= 30
    if hit.sum() < 2:
        return None
    last = int(np.flatnonzero(hit)[-1])
    rate = float(rates[last])
    return Detection(
        int(steps[np.flatnonzero(hit)[0]]),
        f"Updates gain {1 - float(ratio_full[last]):.2g} of the error each; {int(lengths[last]):,} times as long they "
        f"would gain {1 - float(ratio_hundredfold[last]):.2g}. The training is far too slow.",
        (
            *run.evidence_of(
                {checks.LINE_SEARCH_RATIO["1"]: "0.9 to 1", checks.LINE_SEARCH_RATIO["100"]: "far above 1"}
            ),
            Evidence(LEARNING_RATE.name, rate, (int(steps[-1]), int(steps[-1]))),
        ),
        ("a run that has converged: longer steps would not help it", "warm-up: the rate no longer rises"),
        confidence=0.99,
        fix=_raise(float(rates.max()) * _raised(run, int(steps[last]))),  # the setting is that of the highest rate
        severity="info" if _is_a_choice(run, rate, 1 - float(ratio_full[last])) else None,
    )


def _is_a_choice(run: RunHistory, rate: float, gain: float) -> bool:
    """In a user's loop a usual rate is slow on purpose, unless the run is far too short for it."""
    if run.config is not None:
        return False
    planned = run.planned_steps
    if planned is not None and planned * gain < MOVED_ENOUGH:
        return False
    return rate >= USUAL_RATE and run.latest(checks.OPTIMIZER_ADAPTIVE, 0.0) == 1


def _raised(run: RunHistory, step: int) -> float:
    """How many times as high the rate should be: a tenth of the length that gains most, which is that of one update on
    its own samples; at least ten."""
    at = np.array([step])
    errors = {float(length): run.at(checks.LINE_SEARCH_RATIO[length], at)[0] for length in LONGER_UPDATES}
    return max(10.0, min(errors, key=lambda length: errors[length] if errors[length] < LONG_GAIN_RATIO else 1.0) / 10)


def _raise(rate: float) -> Fix:
    rate = round_rate(rate)
    return Fix(f"Raise the learning rate to about {rate:g}.", {"optimizer.lr": rate}, "unsafe")
