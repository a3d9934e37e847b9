"""Updates that do not happen, and gradients that are cleared too early or never."""

from __future__ import annotations

import numpy as np

from safelight import checks
from safelight.diagnosis.finding import Evidence
from safelight.diagnosis.rule import Detection, error_rule, first_of, on_episode
from safelight.diagnosis.rules.loss.gradient import is_plain
from safelight.diagnosis.run_history import Episode, ReadingName, RunHistory, episode_of
from safelight.vocabulary import GRADIENT_NORM, LEARNING_RATE, REFUSED, UPDATE_RATIO

MIN_STILL_UPDATES = 3
EXPLAINED_SHARE = 0.995  # of the gradient, by that of the step before and its own
CARRIED_SHARE = 0.5  # of the gradient of the step before, over the new one; cleared gradients have 0, kept ones 1
OTHER = 0.05  # of the update's length
ROUNDING_SHARE = 0.01  # of it: steps of a weight by itself are a few of its last digits
COUNTED = ("refused updates: they are not counted", "a learning rate of 0: those steps are not counted")


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
)
