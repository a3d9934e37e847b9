"""Updates that do not happen, or differ from what they should be."""

from __future__ import annotations

import numpy as np

from safelight import checks
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.rule import Detection, error_rule, first_of, on_count, on_episode, on_latest, warning_rule
from safelight.diagnosis.rules.loss.gradient import is_plain
from safelight.diagnosis.run_history import Episode, ReadingName, RunHistory, episode_of
from safelight.vocabulary import GRADIENT_NORM, LEARNING_RATE, LOSS, REFUSED, UPDATE_RATIO

MIN_STILL_UPDATES = 3
PULL_FACTOR, USUAL_DECAY = 3.0, 0.2  # times the gradient; settings in use are 0 to 0.1
FREQUENT_SHARE = 0.1  # of the steps
USUAL_STEPS, RISE_FACTOR = 16, 1.1  # steps; times their loss
AGAINST = -0.1  # cosine of gradient and update; Adam has 0.05 to 0.6, with momentum a little below 0 for a while
EXPLAINED_SHARE = 0.995  # of the gradient, by that of the step before and its own
CARRIED_SHARE = 0.5  # of the gradient of the step before, over the new one; cleared gradients have 0, kept ones 1
BASE = 0.1  # of the network: norms and the like are less
OTHER = 0.05  # of the update's length
ROUNDING_SHARE = 0.01  # of it: steps of a weight by itself are a few of its last digits
FAST_DECAY = 2e-4  # of the weights per step: half of them are gone after 3,500
COUNTED = ("refused updates: they are not counted", "a learning rate of 0: those steps are not counted")
DECAYED_SHARE = 0.2  # of the update that is decay; healthy runs have 0.001 to 0.1


def cleared_without_step(run: RunHistory) -> Detection | None:
    for note in run.events("no_update"):
        return Detection(
            note.step,
            f"Gradients of {note.facts.get('batches')} batches were computed and cleared, and the optimizer made no "
            "step.",
            (Evidence("no_update", float(note.facts.get("batches", 0)), (note.step, note.step), "0"),),
            ("accumulation: it does not clear gradients before the step",),
        )
    return None


def nothing_moved(run: RunHistory) -> Episode | None:
    """Where an update was repeated on copies: there was a gradient, the optimizer would have moved, and nothing did."""
    steps, moved = run.series(checks.UPDATE_MOVED)
    return episode_of(steps, (moved == 0) & (run.at(checks.UPDATE_EXPECTED, steps) > 0), 2)


def _is_due(run: RunHistory, steps: np.ndarray, gradients: ReadingName) -> np.ndarray:
    """Whether there was a gradient and a learning rate, and the update was not refused."""
    accepted = run.at(REFUSED, steps, 0.0) == 0
    return (run.at(gradients, steps, 0.0) > 0) & accepted & (run.at(LEARNING_RATE, steps, 1.0) > 0)


def sample_parameter_still(run: RunHistory) -> Episode | None:
    """Exact, by the small tensor that is watched at every step, since the last update that was repeated on copies."""
    steps, moved = run.series(checks.SAMPLE_PARAMETER_MOVED)
    due = _is_due(run, steps, checks.SAMPLE_PARAMETER_GRADIENT)
    episode = episode_of(steps[due], moved[due] == 0, MIN_STILL_UPDATES)
    looked = run.steps(checks.UPDATE_MOVED)
    return episode if episode is not None and (not len(looked) or looked[-1] < episode.first) else None


def ratios_of_zero(run: RunHistory) -> Detection | None:
    """Where no probe looked: the update ratios of the monitors, once in 64 steps."""
    if len(run.steps(checks.UPDATE_LOST)):
        return None
    ratios = [f"{UPDATE_RATIO.name}/{part}" for part in run.parts(UPDATE_RATIO)]
    steps = np.unique(np.concatenate([np.zeros(0, np.int64), *map(run.steps, ratios)]))
    due = steps[_is_due(run, steps, GRADIENT_NORM)]
    norms, rates = run.at(GRADIENT_NORM, due), run.at(LEARNING_RATE, due)
    still = np.isfinite(norms)
    for ratio in ratios:
        still &= run.at(ratio, due, 0.0) == 0
    if not len(due) or not still.all():
        return None
    first, last = int(due[0]), int(due[-1])
    return Detection(
        first,
        f"No weight moved in any of {len(due)} updates that were checked, though there were gradients.",
        (
            Evidence(UPDATE_RATIO.name, 0.0, (first, last), "1e-5 to 1e-1"),
            Evidence(GRADIENT_NORM.name, float(norms[-1]), (last, last)),
            *(() if np.isnan(rates[-1]) else (Evidence(LEARNING_RATE.name, float(rates[-1]), (last, last)),)),
        ),
        COUNTED,
    )


no_update = first_of(
    cleared_without_step,
    on_episode(
        nothing_moved,
        "No weight moved in {episode.looks} updates that were checked, where the optimizer's own arithmetic would have "
        "moved them by {1:.2g}.",
        "a learning rate of 0, or no gradient: the optimizer itself would have moved the weights",
        evidence={checks.UPDATE_MOVED: "above 0", checks.UPDATE_EXPECTED: None},
    ),
    on_episode(
        sample_parameter_still,
        "Weights did not move in {episode.looks} updates, though there were gradients and a learning rate.",
        *COUNTED,
        evidence={checks.SAMPLE_PARAMETER_MOVED: "1", checks.SAMPLE_PARAMETER_GRADIENT: None},
    ),
    ratios_of_zero,
)


def carried_over(run: RunHistory) -> Episode | None:
    steps, carried = run.series(checks.REPLAY_CARRIED)
    explained = run.at(checks.REPLAY_EXPLAINED, steps)
    # The gradient of a plain loss is known exactly; of a weighted one only nearly, and two looks have to agree.
    near, sure, looks = (1 - CARRIED_SHARE, EXPLAINED_SHARE, 1) if is_plain(run) else (0.15, 0.98, 2)
    return episode_of(steps, (np.abs(carried - 1) < near) & (explained > sure), looks)


no_zero_grad = first_of(
    on_episode(  # exact, where it can be seen: a gradient was there before that of the first backward pass came
        lambda run: run.episode(checks.SAMPLE_PARAMETER_CARRIED, lambda numbers: numbers == 1, MIN_STILL_UPDATES),
        "At {episode.looks} steps the gradient of the step before was still there when the new one came: gradients are "
        "never cleared, and every update repeats all earlier ones.",
        "accumulation: only the first backward pass after an update counts",
        "momentum: it is kept elsewhere",
        evidence={checks.SAMPLE_PARAMETER_CARRIED: "0", checks.SAMPLE_PARAMETER_ECHO: None},
    ),
    on_episode(
        carried_over,
        "The gradient holds {:.2f} times that of the step before: gradients are never cleared, and every update "
        "repeats all earlier ones.",
        "momentum: it is kept in the optimizer, not in the gradient",
        evidence={checks.REPLAY_CARRIED: "0", checks.REPLAY_COSINE: "1"},
    ),
)


def missing_parameters(run: RunHistory) -> Detection | None:
    share = run.latest(checks.OPTIMIZER_MISSING, 0.0)
    if not 0 < share < 1:
        return None
    return Detection(
        0,
        f"{share:.1%} of the network requires gradients and is not in the optimizer: "
        f"{run.named_parameters('missing')}.",
        (run.evidence(checks.OPTIMIZER_MISSING, "0"),),
        ("parts that are frozen on purpose: they do not require a gradient",),
    )


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


def cleared_before_step(run: RunHistory) -> Detection | None:
    """Exact: a gradient came out of the backward pass, and there is none at the update."""
    steps, came = run.series(checks.SAMPLE_PARAMETER_BACKWARD)
    episode = episode_of(steps, (came > 0) & (run.at(GRADIENT_NORM, steps, 1.0) == 0), 2)
    if episode is None:
        return None
    return Detection(
        episode.first,
        "Gradients came out of the backward pass, and were gone at the optimizer's step: they are cleared in between.",
        (
            run.evidence(checks.SAMPLE_PARAMETER_BACKWARD, "above 0", episode.last),
            Evidence(GRADIENT_NORM.name, 0.0, healthy_range="above 0"),
        ),
        ("a loss that does not reach the network: gradients did come",),
        ended_at=episode.ended_at,
    )


def only_decays(run: RunHistory) -> Episode | None:
    """Exact: at the first updates the weights decay as set, to the last digit, and do not change otherwise."""
    steps, errors = run.series(checks.UPDATE_ERROR)
    shares = run.at(checks.UPDATE_DECAY_SHARE, steps)
    return episode_of(steps, (errors > OTHER) & (np.abs(shares - 1) < ROUNDING_SHARE), 2)


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
        "OPT001",
        "optimizer.no-update",
        "Gradients, and weights that do not move",
        what="Updates with a gradient and a learning rate leave every weight as it was, to the last bit.",
        why="Nothing is learnt, and the loss looks like a plateau.",
        similar="A converged run still moves its weights. With loss.detached (LOS002) there is no gradient either.",
        limits="Weights that move a little less than they should.",
        fix="Is optimizer.step() called, and does the optimizer hold the parameters of this model? A model that was "
        "copied, moved or wrapped after the optimizer was made has other ones.",
        needs=((checks.SAMPLE_PARAMETER_MOVED, checks.UPDATE_MOVED, UPDATE_RATIO),),
        detect=no_update,
        explained_by="precision.lost optimizer.other-parameters optimizer.adapters lr.zero optimizer.zeroed "
        "loss.detached",
    ),
    error_rule(
        "OPT002",
        "optimizer.no-zero-grad",
        "Gradients are never cleared",
        what="The gradient of a step holds that of the step before.",
        why="Every update repeats all earlier ones: the run drifts, then diverges.",
        similar="Accumulation clears after its update. Momentum is kept in the optimizer.",
        limits="Gradients that are cleared only in part.",
        fix="optimizer.zero_grad() before every backward pass, or after every update.",
        needs=((checks.SAMPLE_PARAMETER_CARRIED, checks.REPLAY_CARRIED),),
        detect=no_zero_grad,
        explained_by="optimizer.missing optimizer.other",
    ),
    error_rule(
        "OPT003",
        "optimizer.other-parameters",
        "An optimizer of another model",
        what="The optimizer holds none of the model's parameters.",
        why="This model is not trained.",
        fix="Make the optimizer after the model was copied, moved or wrapped, from its parameters().",
        needs=(checks.OPTIMIZER_MISSING,),
        detect=on_latest(
            {checks.OPTIMIZER_MISSING: "0", checks.OPTIMIZER_FOREIGN: "0"},
            lambda missing, foreign: not missing < 1 or (missing > 0 and foreign > 0),
            lambda missing, foreign: (
                f"The optimizer lacks {missing:.0%} of what the model trains and holds parameters that are not the "
                "model's: it trains another model, a copy, or a layer that was replaced."
                if foreign > 0
                else "The optimizer holds parameters of the model, but none that require a gradient: those that do "
                "were added or unfrozen after it was made."
            ),
            step=0,
        ),
        explained_by="optimizer.adapters-missing",
    ),
    warning_rule(
        "OPT004",
        "optimizer.missing-parameters",
        "Parameters that no optimizer holds",
        what="Parts of the network require gradients and are in no group of the optimizer.",
        why="They stay as they were initialised.",
        similar="Parts that are frozen on purpose do not require gradients.",
        limits="A second optimizer that is not passed.",
        fix="Give the optimizer all parameters that require gradients, or freeze the others.",
        needs=(checks.OPTIMIZER_MISSING,),
        detect=missing_parameters,
        explained_by="optimizer.other-parameters optimizer.adapters-missing",
    ),
    error_rule(
        "OPT012",
        "optimizer.adapters-missing",
        "Adapters that no optimizer holds",
        what="Adapters of low rank require gradients and are in no group of the optimizer.",
        why="They stay as they were made: their output is 0, and the network is the one without adapters.",
        similar="Adapters whose matrices are both 0 are in the optimizer, and have no gradient.",
        limits="Adapters that neither their names nor their classes tell.",
        fix="Make the optimizer after the adapters were added, from all parameters that require a gradient.",
        needs=(checks.ADAPTER_MISSING,),
        detect=on_latest(
            {checks.ADAPTER_MISSING: "0"},
            lambda share: share > 0,
            "{:.0%} of the adapters are in no optimizer, and are never trained: it was made before they were added, or "
            "without them.",
            step=0,
        ),
    ),
    warning_rule(
        "OPT009",
        "optimizer.base-trained",
        "The network beside its adapters is trained",
        what="Adapters of low rank are in the network, and the weights that they adapt are trained as well.",
        why="The adapters alone, which are saved, do not hold what was learnt.",
        similar="A few layers that are trained beside adapters, such as norms, are a choice.",
        limits="Adapters whose names do not say so.",
        fix="requires_grad_(False) on the network before adapters are added, and pass only what is left to the "
        "optimizer.",
        needs=(checks.ADAPTER_BASE_TRAINED,),
        detect=on_latest(
            {checks.ADAPTER_BASE_TRAINED: "below 0.1"},
            lambda share: share > BASE,
            "{:.0%} of the network beside its adapters requires a gradient and is trained with them.",
            step=0,
        ),
    ),
    error_rule(
        "OPT010",
        "optimizer.adapter-dead",
        "Adapters that cannot learn",
        what="Both matrices of an adapter are 0.",
        why="Each of them is multiplied by the other: neither has a gradient, ever.",
        similar="Usually the second one is 0, and the first is not.",
        fix="Initialise the first matrix by random numbers and only the second one by zeros.",
        needs=(checks.ADAPTER_DEAD,),
        detect=on_latest(
            {checks.ADAPTER_DEAD: "0"},
            lambda share: share > 0,
            "{:.0%} of the adapters have two matrices of zeros: they have no gradient and stay so.",
            step=0,
        ),
    ),
    warning_rule(
        "OPT011",
        "optimizer.frozen-changed",
        "Weights that are not trained have changed",
        what="Weights that require no gradient are not what they were when the watch began.",
        why="What is frozen is not saved with adapters, and not expected to differ.",
        similar="Buffers, such as the statistics of batch norm, may change.",
        fix="Look for what writes to them: an EMA that is copied into the model, a merge of adapters, a cast.",
        needs=(checks.FROZEN_CHANGED,),
        detect=on_count(
            checks.FROZEN_CHANGED,
            1,
            "Weights that are not trained were changed, as seen at {} looks.",
            "swapped weights that were put back: they would be the same again",
        ),
    ),
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
    error_rule(
        "OPT007",
        "optimizer.zeroed-gradients",
        "Gradients are cleared before the update",
        what="Gradients come out of the backward pass and are gone at the optimizer's step.",
        why="Nothing is learnt.",
        similar="A detached loss gives no gradient in the first place.",
        fix="zero_grad() before the backward pass, not between it and step().",
        needs=((checks.SAMPLE_PARAMETER_BACKWARD, checks.UPDATE_ERROR),),
        detect=first_of(
            cleared_before_step,
            on_episode(
                only_decays,
                "There was a gradient, and the optimizer made its steps without it: the weights only decay. It was "
                "cleared just before the update.",
                "a large decay: by the optimizer's own arithmetic the gradient should have moved them",
                evidence={checks.UPDATE_DECAY_SHARE: "below 0.1"},
                latest={checks.UPDATE_EXPECTED: None},
            ),
        ),
        explained_by="optimizer.other-parameters",
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
