"""Trainings that diverge."""

from __future__ import annotations

import numpy as np

from safelight import checks
from safelight.diagnosis.definitions import DIVERGED
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.loss_shapes import is_above
from safelight.diagnosis.rule import Detection
from safelight.diagnosis.run_history import RunHistory, name_of, running_median
from safelight.vocabulary import LEARNING_RATE, LOSS

WINDOW = 8
RISE_FACTOR = 10.0  # times the best and the first loss
TARGET_GROWTH_FACTOR = 4.0  # times the first mean square of the targets, which is the same in every healthy run
LONG_STEPS = 100  # steps after which a rate should have begun to decay
CONSTANT_TOLERANCE = 1e-3  # relative change of a learning rate that does not decay


def _rising(run: RunHistory) -> Detection | None:
    """By the loss itself: it is many times what it was at first and at its best, and stays there."""
    steps, losses = _numbers(*run.series(LOSS))
    if len(losses) < 4 * WINDOW or not (losses[np.isfinite(losses)] > 0).all():
        return None
    smooth = running_median(losses, WINDOW)
    # A running mean begins with the loss of one batch, which may be far too low.
    is_smoothed = run.spacing is not None and not run.spacing.single
    best, begin = float(smooth.min()), float(smooth[: len(smooth) // 4].max() if is_smoothed else smooth[0])
    if not smooth[-1] > RISE_FACTOR * max(best, begin):
        return None
    place = WINDOW - 1 + int(np.flatnonzero(smooth <= RISE_FACTOR * max(best, begin))[-1])
    if not is_above(losses, min(place, len(losses) - WINDOW)):
        return None  # batches of one image: eight of them may well have ten times the loss of others
    first, targets = int(steps[place]), _growth_of_targets(run)
    return Detection(
        first,
        f"The loss is {float(smooth[-1]):.3g}; it began at {begin:.3g} and had been {best:.3g}. The training has "
        "diverged"
        + (f", and the targets have grown {targets:.3g} times with it." if targets >= TARGET_GROWTH_FACTOR else "."),
        (Evidence(LOSS.name, float(smooth[-1]), (first, int(steps[-1]))),),
        ("hard batches: it stays there",),
        confidence=0.99,
        fix=_bootstrapped() if targets >= TARGET_GROWTH_FACTOR else _return(run),
    )


def _numbers(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Without NaN, which any step may leave: a divergence shows before."""
    known = ~np.isnan(values)
    return steps[known], values[known]


def _growth_of_targets(run: RunHistory) -> float:
    """Their mean square over that of the first steps; 1 where it is not known."""
    squares = run.numbers(checks.LOSS_ZERO_MSE)
    is_enough = len(squares) >= 3 * WINDOW
    return float(np.median(squares[-WINDOW:]) / max(float(np.median(squares[:WINDOW])), 1e-12)) if is_enough else 1.0


def _bootstrapped() -> Fix:
    return Fix(
        "If the targets come from the network itself or its EMA (consistency, distillation): stop their gradient, take "
        "them from an EMA that changes more slowly, and lower optimizer.lr. If not, check what scales them."
    )


def _return(run: RunHistory) -> Fix | None:
    """None if the rule's own fix says all."""
    rates = run.numbers(LEARNING_RATE)
    if len(rates) <= LONG_STEPS or not is_constant(rates):
        return None
    return Fix(
        f"Return to the last good checkpoint, and lower optimizer.lr: it was {float(rates[-1]):.2g} until the end. "
        "Let it decay."
    )


def is_constant(rates: np.ndarray) -> bool:
    """Whether a rate does not decay in its later half."""
    late = rates[len(rates) // 2 :]
    return len(late) > 1 and bool(np.ptp(late) <= CONSTANT_TOLERANCE * late.max())


def diverged(run: RunHistory) -> Detection | None:
    steps, errors = run.series(checks.LOSS_MSE)
    zeros = run.numbers(checks.LOSS_ZERO_MSE)
    if not len(steps) or len(zeros) != len(steps):
        return _rising(run)
    steps, ratios = _numbers(steps, errors / np.maximum(zeros, 1e-12))
    if len(steps) < 3 * WINDOW:
        return None
    smooth = running_median(ratios, WINDOW)
    best = np.minimum.accumulate(smooth)
    bad = ~(smooth < DIVERGED.zero_ratio) & ~(smooth < DIVERGED.best_ratio * best)
    if not bad[-1]:  # targets that grow with the error hide it
        return _rising(run) if _growth_of_targets(run) >= TARGET_GROWTH_FACTOR else None
    first = int(steps[WINDOW - 1 + np.flatnonzero(~bad)[-1]]) if (~bad).any() else int(steps[0])
    return Detection(
        first,
        f"The error is {float(smooth[-1]):.3g} times that of a model which always predicts 0; it had been "
        f"{float(best[-1]):.3g}. The training has diverged.",
        (Evidence(name_of(checks.LOSS_MSE), float(errors[~np.isnan(errors)][-1]), (first, int(steps[-1]))),),
        confidence=0.99,
        fix=_return(run),
    )
