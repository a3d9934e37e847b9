"""Losses and gradients that spike, and runs that diverge."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from safelight import checks
from safelight.diagnosis.finding import Evidence
from safelight.diagnosis.rule import Detection, Rule
from safelight.diagnosis.run_history import RunHistory, name_of
from safelight.vocabulary import GRADIENT_NORM, LOSS

AWAY, WORSE = 2.0, 3.0  # error over the zero predictor's; over the best of the run
WINDOW = 8
RISEN = 10.0  # times the best and the first loss
USUAL, FAR_OUT = 24, 8.0  # steps; times the largest of them


def look_spike(run: RunHistory) -> Detection | None:
    """A gradient far beyond all before, while images and error of that step were as usual."""
    found = spikes_of(run)
    if found is None:
        return None
    step, factor, by_batch = found
    if by_batch:
        return None
    return Detection(
        step,
        f"At step {step:,} the gradient was {factor:.3g} times the largest of the steps before, while the error of the "
        "batch was as usual: it is not the batch's gradient. A bit flipped, or something wrote into it.",
        (Evidence(GRADIENT_NORM.name, factor, (step, step), "1"),),
        ("a hard batch: its error was as usual",),
        confidence=0.99,
    )


def look_outliers(run: RunHistory) -> Detection | None:
    """Batches that are far from all others, by their images or by their error."""
    steps, reach = run.series(checks.BATCH_REACH)
    odd = np.flatnonzero(reach > 4 * np.median(reach)) if len(reach) >= USUAL else np.zeros(0, np.int64)
    odd = odd if len(odd) < 0.2 * len(reach) else odd[:0]
    found = spikes_of(run)
    if not len(odd) and (found is None or not found[2] or not _passes(run, found[0])):
        return None
    step = int(steps[odd[0]]) if len(odd) else (found[0] if found is not None else 0)
    count = len(odd) or 1
    return Detection(
        step,
        f"{count} batch{'es' * (count != 1)} differed strongly from all others, first at step {step:,}: images or "
        "errors many times as large as usual, which one update carries into every weight.",
        (
            run.evidence(checks.BATCH_REACH, "as in other batches", step),
            run.evidence(checks.LOSS_ERROR, "as usual", step),
        ),
        ("images that changed once and for all: the batches after it are as before",),
        confidence=0.99,
    )


def spikes_of(run: RunHistory) -> tuple[int, float, bool] | None:
    """(step, factor, whether the batch's own error was far out too) of the first gradient beyond all before."""
    steps, norms = run.series(GRADIENT_NORM)
    odd = _beyond(norms, FAR_OUT)
    if not len(odd):
        return None
    place = int(odd[0])
    places, losses = run.series(LOSS)
    mine = int(np.searchsorted(places, steps[place]))
    if mine >= len(losses) or mine < USUAL or places[mine] != steps[place]:
        return None
    by_batch = not losses[mine] < 3 * losses[mine - USUAL : mine].max()
    return int(steps[place]), float(norms[place] / norms[max(0, place - USUAL) : place].max()), by_batch


def _passes(run: RunHistory, step: int) -> bool:
    """Whether the errors after a step are those of before; where they stay, it was not the batch."""
    steps, losses = run.series(LOSS)
    place = int(np.searchsorted(steps, step))
    before, after = losses[max(0, place - USUAL) : place], losses[place + 1 : place + 1 + WINDOW]
    return len(after) < WINDOW // 2 or bool(np.median(after) < 3 * before.max())


def _beyond(numbers: np.ndarray, factor: float) -> np.ndarray:
    """Places of numbers that many times exceed the largest of those just before them."""
    if len(numbers) <= USUAL:
        return np.zeros(0, np.int64)
    highest = sliding_window_view(numbers[:-1], USUAL).max(1)  # NaN where one of them is
    with np.errstate(invalid="ignore"):
        odd = np.isfinite(highest) & (highest > 0) & (numbers[USUAL:] > factor * highest)
    return np.flatnonzero(odd) + USUAL


def _look_rising(run: RunHistory) -> Detection | None:
    """Where only the loss is known: it is many times what it was at first and at its best, and stays there."""
    steps, losses = run.series(LOSS)
    if len(losses) < 4 * WINDOW or not (losses[np.isfinite(losses)] > 0).all():
        return None
    losses = np.nan_to_num(losses, nan=np.inf)
    smooth = np.median(sliding_window_view(losses, WINDOW), axis=1)
    best, begin = float(smooth.min()), float(smooth[0])
    if not smooth[-1] > RISEN * max(best, begin):
        return None
    first = int(steps[WINDOW - 1 + int(np.flatnonzero(smooth <= RISEN * max(best, begin))[-1])])
    return Detection(
        first,
        f"The loss is {float(smooth[-1]):.3g}; it began at {begin:.3g} and had been {best:.3g}. The training has "
        "diverged.",
        (Evidence(LOSS.name, float(smooth[-1]), (first, int(steps[-1]))),),
        ("hard batches: it stays there",),
        confidence=0.99,
    )


def look_diverged(run: RunHistory) -> Detection | None:
    steps, errors = run.series(checks.LOSS_ERROR)
    zeros = run.numbers(checks.LOSS_ZERO)
    if not len(steps):
        return _look_rising(run)
    if len(steps) < 3 * WINDOW:
        return None
    ratios = errors / np.maximum(zeros, 1e-12)
    smooth = np.median(sliding_window_view(ratios, WINDOW), axis=1)
    best = np.minimum.accumulate(smooth)
    bad = ~(smooth < AWAY) & ~(smooth < WORSE * best)
    if not bad[-1]:
        return None
    first = int(steps[WINDOW - 1 + np.flatnonzero(~bad)[-1]]) if (~bad).any() else int(steps[0])
    return Detection(
        first,
        f"The error is {float(smooth[-1]):.3g} times that of a model which always predicts 0; it had been "
        f"{float(best[-1]):.3g}. The training has diverged.",
        (Evidence(name_of(checks.LOSS_ERROR), float(errors[-1]), (first, int(steps[-1]))),),
        confidence=0.99,
    )


RULES = (
    Rule(
        code="LOS007",
        cause="loss.diverged",
        title="A training that diverges",
        what="The error is several times that of a model that always predicts 0, and had been far better.",
        why="Weights grow without bound.",
        similar="A single spike is over within a few steps. Images of another range raise the loss as well.",
        limits="A rise that stays below the zero predictor.",
        fix="Return to the last good checkpoint, lower optimizer.lr, lengthen optimizer.warmup.",
        needs=((checks.LOSS_ERROR, LOSS),),
        detect=look_diverged,
        explained_by="*",
    ),
    Rule(
        code="PRE004",
        cause="precision.transient",
        title="A spike of the gradient alone",
        what="One gradient is many times larger than all before, though the error of its batch is as usual.",
        why="One such update can undo the training.",
        similar="A bad batch has a large error as well.",
        limits="Errors within a few times of the usual.",
        fix="With --heal the step is repeated. If it happens often, test the machine's memory.",
        severity="warning",
        needs=(GRADIENT_NORM, LOSS),
        detect=look_spike,
        explained_by="lr.jump lr.too-high lr.no-warmup data. scale. optimizer. loss.weighting",
    ),
    Rule(
        code="CLI002",
        cause="clipping.outlier-batches",
        title="Outlier batches",
        what="Single batches whose images or errors are many times those of all others.",
        why="Without clipping one of them changes every weight and the optimizer's moments.",
        similar="Images that change once and for all are data.shifted.",
        limits="Outliers among many in a large batch.",
        fix="clipping.kind adaptive; check the images of that step.",
        severity="warning",
        needs=((checks.BATCH_REACH, GRADIENT_NORM),),
        detect=look_outliers,
        explained_by="lr.jump lr.too-high data.shifted data.nonfinite optimizer.no-zero loss.weighting",
    ),
)
