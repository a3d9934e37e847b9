"""Rates so low that updates gain nearly nothing."""

from __future__ import annotations

import numpy as np

from safelight import checks
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.rule import Detection
from safelight.diagnosis.run_history import RunHistory
from safelight.vocabulary import LEARNING_RATE
from safelight.words import round_rate

NOTHING, MUCH = 0.98, 0.999  # an update that gains less than the first, where a hundredfold one gains more
LONGER = ("10", "100", "10000", "1000000")
STRAIGHT = 5.0  # times more gain by a hundredfold update than by a tenfold one: the loss still falls in a straight line
SEARCHES = 4  # along the updates of at least 30 steps
UNLEARNT = 0.6  # error over that of the zero predictor: above it, there is something left to learn
USUAL_RATE = 1e-5  # of Adam, in published recipes: 1e-5 to 2e-3
MOVED_ENOUGH = 0.5  # of the error, by all updates of a run together


def too_low(run: RunHistory) -> Detection | None:
    steps, whole = run.series(checks.SEARCH["1"])
    ten, far = (run.at(checks.SEARCH[length], steps) for length in ("10", "100"))
    rates, starts, zeros = (
        run.at(check, steps) for check in (checks.SEARCH_RATE, checks.SEARCH_START, checks.SEARCH_ZERO)
    )
    if len(whole) < SEARCHES or steps[-1] - steps[0] < 30:
        return None
    risen = np.concatenate([[True], rates[1:] > 1.2 * np.maximum.accumulate(rates)[:-1]])
    straight = (1 - far) > STRAIGHT * (1 - ten)
    lengths = np.full(len(steps), 100)
    for length in ("10000", "1000000"):  # a rate so low that even a hundredfold update gains nothing
        farther = run.at(checks.SEARCH[length], steps)
        lower = (far > MUCH) & (far < 1.001) & (farther < MUCH)
        far, straight = np.where(lower, farther, far), straight | lower
        lengths = np.where(lower, int(length), lengths)
    hit = (whole > NOTHING) & (far < MUCH) & (ten < 1.001) & straight & (starts > UNLEARNT * zeros) & ~risen
    hit &= steps - steps[0] >= 30
    if hit.sum() < 2:
        return None
    last = int(np.flatnonzero(hit)[-1])
    rate = float(rates[last])
    return Detection(
        int(steps[np.flatnonzero(hit)[0]]),
        f"Updates gain {1 - float(whole[last]):.2g} of the error each; {int(lengths[last]):,} times as long they would "
        f"gain {1 - float(far[last]):.2g}. The training is far too slow.",
        (
            *run.evidence_of({checks.SEARCH["1"]: "0.9 to 1", checks.SEARCH["100"]: "far above 1"}),
            Evidence(LEARNING_RATE.name, rate, (int(steps[-1]), int(steps[-1]))),
        ),
        ("a run that has converged: longer steps would not help it", "warm-up: the rate no longer rises"),
        confidence=0.99,
        fix=_raise(float(rates.max()) * _raised(run, int(steps[last]))),  # the setting is that of the highest rate
        severity="info" if _is_a_choice(run, rate, 1 - float(whole[last])) else None,
    )


def _is_a_choice(run: RunHistory, rate: float, gain: float) -> bool:
    """In a loop that is not ours a usual rate is slow on purpose, unless the run is too short for it by far."""
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
    errors = {float(length): run.at(checks.SEARCH[length], at)[0] for length in LONGER}
    return max(10.0, min(errors, key=lambda length: errors[length] if errors[length] < MUCH else 1.0) / 10)


def _raise(rate: float) -> Fix:
    rate = round_rate(rate)
    return Fix(f"Raise the learning rate to about {rate:g}.", {"optimizer.lr": rate}, "unsafe")
