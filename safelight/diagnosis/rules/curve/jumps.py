"""A loss that is suddenly another one, and stays so: spikes that last, and drops."""

from __future__ import annotations

import numpy as np

from safelight import checks
from safelight.diagnosis import loss_shapes as shapes
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.rule import AtLeast, Detection, warning_rule
from safelight.diagnosis.rules.learning import CAUSES_OF_DAMAGE
from safelight.diagnosis.rules.loss.divergence import diverged
from safelight.diagnosis.run_history import RunHistory
from safelight.diagnosis.spacing import LogNeed
from safelight.vocabulary import LOSS, LOSS_AT_LEVEL

SPIKE = 2.0  # times the loss before; no healthy curve jumps up, by any factor
DROP, GAP = 3.0, 2.0  # times; with 2 and 1.5, three healthy curves of 3,165 drop: learning that sets in at once
USUAL_BATCH_FACTOR = 4.0  # times the largest value of other batches, or deviations of their moments
BLANK = 0.25  # of the usual deviation of the images


def curve(run: RunHistory) -> tuple[np.ndarray, np.ndarray]:
    """(steps, losses); empty if a loss is not finite or not above 0, which other rules report."""
    steps, losses = run.series(LOSS)
    finite = np.isfinite(losses)
    steps, losses = steps[finite], losses[finite].astype(np.float64)
    return (steps, losses) if shapes.is_judged(losses) else (steps[:0], losses[:0])


def spike(run: RunHistory) -> Detection | None:
    steps, losses = curve(run)
    jump = shapes.jumps_up(losses, SPIKE) if len(losses) and diverged(run) is None else None
    if jump is None:
        return None
    step, ended_at = int(steps[jump.first]), None if jump.ended_at is None else int(steps[jump.ended_at])
    usual = has_usual_images(run, step)
    length = (steps[-1] + 1 if ended_at is None else ended_at) - step
    return Detection(
        step,
        f"At step {step:,} the loss went from {jump.before:.3g} to {jump.after:.3g}, {jump.factor:.3g} times as much, "
        + (
            f"and stayed there for {length:,} steps."
            if ended_at is not None
            else f"and is there since, for {length:,} steps."
        ),
        (
            Evidence(
                LOSS.name,
                jump.after,
                (step, int(steps[-1]) if ended_at is None else ended_at),
                f"about {jump.before:.2g}",
            ),
        ),
        (
            "a hard batch: the next one would have the loss of before",
            *(("bad images: those of that step and of the one before were as in other batches",) if usual else ()),
        ),
        confidence=0.99,
        fix=_calm(run, usual),
        ended_at=ended_at,
    )


def _calm(run: RunHistory, usual: bool | None) -> Fix:
    """Against updates that are too large for a moment: not the images' fault where they were as usual."""
    images = "" if usual else "Check the images and labels of the step before it. "
    beta2 = None if run.config is None else run.config.optimizer.beta2
    moments = "optimizer.beta2 to 0.95" if beta2 is not None else "beta2 of Adam to 0.99 or 0.95"
    lower = (
        "" if beta2 is not None and beta2 <= 0.95 else f", or lower {moments}, so that it sees larger gradients sooner"
    )
    return Fix(f"{images}Lower optimizer.lr, clip gradients by their norm{lower}.")


def has_usual_images(run: RunHistory, step: int) -> bool | None:
    """Whether the batch at which something began, and the one before, whose update came first, have usual images; None
    if not known."""
    found: list[bool] = []
    for check in (checks.BATCH_ABS_MAX, checks.BATCH_STD, checks.BATCH_MEAN):
        steps, numbers = run.series(check)
        here = (steps == step) | (steps == step - 1)
        others = numbers[~here]
        if not here.any() or len(others) < shapes.MIN_LOSSES_BEFORE:
            continue
        middle = np.median(others)
        deviation = 1.4826 * float(np.median(np.abs(others - middle)))
        far = np.abs(numbers[here] - middle) > np.maximum(USUAL_BATCH_FACTOR * deviation, 0.5 * np.ptp(others))
        found.append(not far.any() and bool((np.abs(numbers[here]) <= USUAL_BATCH_FACTOR * np.abs(others).max()).all()))
    return all(found) if found else None


def drop(run: RunHistory) -> Detection | None:
    steps, losses = curve(run)
    jump = shapes.jumps_down(losses, DROP, GAP) if len(losses) else None
    if jump is None:
        return None
    step, ended_at = int(steps[jump.first]), None if jump.ended_at is None else int(steps[jump.ended_at])
    levels, blank = _levels_since(run, step), _is_blank_since(run, step)
    causes = {
        f"only {levels} of the 16 noise levels are drawn since: the timesteps have collapsed": levels and levels < 8,
        "the images vary far less since: they have become blank, or all the same": blank,
    }
    cause = next((words for words, holds in causes.items() if holds), None)
    return Detection(
        step,
        f"At step {step:,} the loss fell from {jump.before:.3g} to {jump.after:.3g} at once. Nothing is learnt in one "
        f"step: {cause or 'the task has become easier'}.",
        (
            Evidence(
                LOSS.name,
                jump.after,
                (step, int(steps[-1]) if ended_at is None else ended_at),
                f"about {jump.before:.2g}",
            ),
        ),
        (
            *(("timesteps that collapsed: all noise levels are still drawn",) if levels == 16 else ()),
            *(("blank images: they vary as before",) if blank is False else ()),
        ),
        confidence=0.99,
        ended_at=ended_at,
    )


def _levels_since(run: RunHistory, step: int) -> int | None:
    """How many noise levels were drawn after a step; None if that is not known yet."""
    last = [steps for part in run.parts(LOSS_AT_LEVEL) if len(steps := run.steps(f"{LOSS_AT_LEVEL.name}/{part}"))]
    newest = max((int(steps[-1]) for steps in last), default=-1)
    whole = newest - 64 >= step  # the window that ended there began after it
    return sum(int(steps[-1]) == newest for steps in last) if whole else None


def _is_blank_since(run: RunHistory, step: int) -> bool | None:
    steps, deviations = run.series(checks.BATCH_STD)
    before, since = deviations[steps < step], deviations[steps >= step]
    return bool(np.median(since) < BLANK * np.median(before)) if len(before) and len(since) else None


RULES = (
    warning_rule(
        "CUR001",
        "loss.spike",
        "A spike of the loss that lasts",
        what="From one step to the next the loss is above all before, and stays there for eight steps or more.",
        why="An update has damaged the weights. What comes back may be worse than what was lost.",
        similar="A bad batch has a high loss once (CLI002). A loss that stays ten times as high has diverged (LOS007).",
        limits="Spikes within the first 32 steps; batches of one or two images, whose losses vary that much by chance.",
        fix="Lower optimizer.lr, clip gradients by their norm, or lower optimizer.beta2.",
        needs=(AtLeast(LOSS, shapes.MIN_LOSSES_BEFORE + shapes.MIN_LOSSES_IN_ROW),),
        detect=spike,
        logs=LogNeed("single"),
        explained_by=CAUSES_OF_DAMAGE,
    ),
    warning_rule(
        "CUR002",
        "loss.drop",
        "A loss that falls all at once",
        what="From one step to the next the loss falls to a third or less, and stays there.",
        why="Learning takes many steps. The task itself has become easier: blank or equal images, timesteps of one "
        "noise level only, or a target that can be read from the input.",
        similar="Learning that sets in suddenly still takes several steps.",
        limits="Drops within the first 32 steps, and small ones; batches of one or two images.",
        fix="Compare images, timesteps, target and loss weights of that step with those of the step before.",
        needs=(AtLeast(LOSS, shapes.MIN_LOSSES_BEFORE + shapes.MIN_LOSSES_IN_ROW),),
        detect=drop,
        logs=LogNeed("every step"),
        explained_by=CAUSES_OF_DAMAGE,
    ),
)
