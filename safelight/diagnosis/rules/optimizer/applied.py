"""Updates in the wrong direction, or that are not the optimizer's own."""

from __future__ import annotations

import numpy as np

from safelight import checks
from safelight.diagnosis.finding import Fix
from safelight.diagnosis.rule import Detection, error_rule, first_of, on_count, on_episode, warning_rule
from safelight.diagnosis.rules.optimizer.moved import MIN_STILL_UPDATES, OTHER
from safelight.diagnosis.run_history import Episode, RunHistory, episode_of
from safelight.vocabulary import GRADIENT_NORM, LOSS

PULL_FACTOR, USUAL_DECAY = 3.0, 0.2  # times the gradient; settings in use are 0 to 0.1
FREQUENT_SHARE = 0.1  # of the steps
USUAL_STEPS, RISE_FACTOR = 16, 1.1  # steps; times their loss
AGAINST = -0.1  # cosine of gradient and update; Adam has 0.05 to 0.6, with momentum a little below 0 for a while
FAST_DECAY = 2e-4  # of the weights per step: half of them are gone after 3,500
DECAYED_SHARE = 0.2  # of the update that is decay; healthy runs have 0.001 to 0.1


def maximizes(run: RunHistory) -> Detection | None:
    steps, aligned = run.series(checks.UPDATE_ALIGNMENT)
    flagged = run.latest(checks.OPTIMIZER_MAXIMIZE, 0.0) == 1
    # Later, momentum may point the other way for a while.
    first = steps < (steps[0] + MIN_STILL_UPDATES if len(steps) else 0)
    episode = episode_of(steps[first], aligned[first] < -0.3) or _against(run)
    if not flagged and episode is None:
        return None
    return Detection(
        0 if flagged or episode is None else episode.first,
        "The optimizer ascends the gradient instead of descending it: "
        + ("it was made with maximize=True." if flagged else "updates point the same way as the gradient."),
        (run.evidence(checks.OPTIMIZER_MAXIMIZE, "0"), run.evidence(checks.UPDATE_ALIGNMENT, "above 0")),
        ("a loss with the wrong sign: its gradient would be reversed as well",),
    )


def _against(run: RunHistory) -> Episode | None:
    """Later: against the gradient at two looks in a row, where a tenth of the update raises the error too, and the loss
    has risen. One of these alone may be momentum."""
    steps, aligned = run.series(checks.UPDATE_ALIGNMENT)
    episode = episode_of(steps, aligned < AGAINST, 2)
    tenths = np.zeros(0) if episode is None else run.during(checks.LINE_SEARCH_RATIO["0.1"], episode)
    if episode is None or not len(tenths) or not (tenths > 1).all():
        return None
    places, losses = run.series(LOSS)
    before, since = losses[places < episode.first][-USUAL_STEPS:], losses[places >= episode.first]
    risen = len(before) > 0 and len(since) > 0 and not np.median(since) <= RISE_FACTOR * np.median(before)
    return episode if risen else None


def weight_decay(run: RunHistory) -> Detection | None:
    steps, shares = (each[1:] for each in run.series(checks.UPDATE_DECAY_SHARE))
    pulls = run.numbers(checks.UPDATE_DECAY_PULL)[1:]
    if len(steps) < 2:
        return None
    if len(pulls) >= 2 and (pull := float(np.median(pulls))) > PULL_FACTOR:
        return Detection(
            int(steps[0]),
            f"The weight decay of {run.latest(checks.OPTIMIZER_WEIGHT_DECAY):g}, which this optimizer adds to the "
            f"gradient, is {pull:.3g} times as large as the gradient: weights are pulled to zero instead of learning.",
            run.evidence_of({checks.UPDATE_DECAY_PULL: "below 1", checks.OPTIMIZER_WEIGHT_DECAY: "0 to 0.01"}),
        )
    decay = run.latest(checks.UPDATE_DECAY, run.latest(checks.OPTIMIZER_WEIGHT_DECAY, 0.0))
    # Else the rate is high.
    if run.latest(checks.LINE_SEARCH_RATE, 0.0) * decay < FAST_DECAY or not decay > USUAL_DECAY:
        return None
    first, share = int(steps[0]), float(np.median(shares))
    if not share > DECAYED_SHARE:
        episode = episode_of(steps, shares > DECAYED_SHARE, 2)
        if episode is None or episode.ended_at is not None:
            return None
        first, share = episode.first, float(shares[-1])
    return Detection(
        first,
        f"{share:.0%} of the length of an update is weight decay ({decay:g}): weights are pulled to zero faster than "
        "they learn.",
        run.evidence_of({checks.UPDATE_DECAY_SHARE: "below 0.1", checks.OPTIMIZER_WEIGHT_DECAY: None}),
    )


def moves_otherwise(run: RunHistory) -> Episode | None:
    moves = run.latest(checks.UPDATE_MOVED, 0.0) > 0
    return run.episode(checks.UPDATE_ERROR, lambda numbers: numbers > OTHER) if moves else None


def changed_between(run: RunHistory) -> Detection | None:
    """Exact: weights were not what the update before had left. Only at a few steps: a method that does so on purpose
    does it at every one."""
    count, looked = len(run.steps(checks.SAMPLE_PARAMETER_CHANGED)), len(run.steps(GRADIENT_NORM))
    return changes(run) if count <= max(1, FREQUENT_SHARE * looked) else None


changes = on_count(
    checks.SAMPLE_PARAMETER_CHANGED,
    1,
    "Weights were changed by something else than the optimizer, before {} of the steps.",
    "weights that are swapped for samples and put back: they would be the same again",
)


RULES = (
    error_rule(
        "OPT005",
        "optimizer.maximize",
        "An optimizer that maximises",
        what="Updates point along the gradient instead of against it.",
        why="The loss is maximised.",
        similar="With a wrong sign of the loss the gradient is reversed, and the optimizer descends it.",
        fix="maximize=False, and a learning rate above 0.",
        needs=((checks.OPTIMIZER_MAXIMIZE, checks.UPDATE_ALIGNMENT),),
        detect=maximizes,
        explained_by="loss.sign precision.transient clipping.outlier",
    ),
    error_rule(
        "OPT006",
        "optimizer.weight-decay",
        "Too much weight decay",
        what="A large part of every update is decay.",
        why="Weights shrink until the network loses capacity: blurred samples.",
        limits="A decay that only shows after many thousand steps.",
        fix="optimizer.weight_decay 0.01 or less.",
        default_fix=Fix("", {"optimizer.weight_decay": 0.01}, "unsafe"),
        needs=(checks.UPDATE_DECAY_SHARE,),
        detect=weight_decay,
        explained_by="lr.no-warmup loss.detached optimizer.zeroed optimizer.no-update precision. optimizer.other "
        "optimizer.missing lr.too-high lr.jump",
    ),
    warning_rule(
        "OPT008",
        "optimizer.not-its-update",
        "Weights that are changed by something else",
        what="The weights after a step are not what the optimizer computes from the same gradients.",
        why="Something else writes into the weights: a clamp, a second step, a stale copy.",
        similar="Rounding in half precision is reported as precision.lost-updates.",
        limits="Optimizers that cannot be copied.",
        fix="Check what happens to the weights between backward and the next forward pass.",
        needs=((checks.OPTIMIZER_FORGOTTEN, checks.UPDATE_ERROR, checks.SAMPLE_PARAMETER_CHANGED),),
        detect=first_of(
            on_episode(
                lambda run: run.episode(checks.OPTIMIZER_FORGOTTEN, lambda numbers: numbers == 1, 2),
                "The optimizer's state is empty before every update: it starts anew each time.",
                latest={checks.OPTIMIZER_FORGOTTEN: "0"},
            ),
            on_episode(
                moves_otherwise,
                "The weights moved otherwise than by the optimizer's own arithmetic, by {:.0%} of the update: "
                "something else changes them, or the step differs.",
                evidence={checks.UPDATE_ERROR: "0", checks.UPDATE_EXPECTED: None},
            ),
            changed_between,
        ),
        explained_by="precision.lost optimizer.no-update optimizer.other optimizer.zeroed",
    ),
)
