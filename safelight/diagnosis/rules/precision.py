"""Arithmetic: loss scales, rounding, and gradients that change by themselves."""

from __future__ import annotations

import numpy as np

from safelight import checks
from safelight.diagnosis.definitions import STORM_STEPS, is_storm
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.rule import AtLeast, Detection, error_rule, on_episode, warning_rule
from safelight.diagnosis.rules.clipping import USUAL_STEPS, first_spike
from safelight.diagnosis.run_history import Episode, RunHistory
from safelight.diagnosis.spacing import LogNeed
from safelight.vocabulary import GRADIENT_NORM, LOSS, LOSS_SCALE, REFUSED

VANISHED_SHARE, MANY_VANISHED_SHARE, LOST_SHARE = 0.01, 0.1, 0.3  # shares of the gradient; fp32 has 0 and 0.0001


def scale_halving(run: RunHistory) -> Detection | None:
    steps, refused = run.series(REFUSED)
    if not len(steps) or (not run.events("refused") and not refused.any()):
        return None
    overflow = {note.step for note in run.events("refused") if note.facts.get("overflow")}
    own = bool(run.events("refused"))
    hits = [bool(r) and (not own or int(s) in overflow) for s, r in zip(steps, refused, strict=True)]
    recent = hits[-STORM_STEPS:]
    if not is_storm(sum(recent)):
        return None
    places, scales = run.series(LOSS_SCALE)
    first = next(int(s) for s, hit in zip(steps[-STORM_STEPS:], recent, strict=True) if hit)
    evidence = [
        Evidence(REFUSED.name, sum(recent) / len(recent), (int(steps[-len(recent)]), int(steps[-1])), "below 0.01")
    ]
    if len(scales):
        evidence.append(Evidence(LOSS_SCALE.name, float(scales[-1]), (int(places[0]), int(places[-1]))))
    return Detection(
        first,
        f"{sum(recent)} of the last {len(recent)} updates overflowed in fp16: the loss scale is halved without end.",
        tuple(evidence),
        ("the search for a scale at the start: it ends after 16 halvings",),
    )


def vanished(run: RunHistory) -> Episode | None:
    half = run.episode(checks.PRECISION_HALF, lambda numbers: numbers == 1)
    least = (
        VANISHED_SHARE if half is not None and run.latest(checks.PRECISION_SCALED, 0.0) == 0 else MANY_VANISHED_SHARE
    )
    cosines = run.numbers(checks.REPLAY_COSINE)
    if not len(cosines) or not float(np.median(cosines)) > 0.5:
        return None
    return run.episode(checks.REPLAY_VANISHED, lambda numbers: numbers > least, 2)


def lost_updates(run: RunHistory) -> Episode | None:
    half = max(run.latest(checks.OPTIMIZER_HALF_WEIGHTS, 0.0), run.latest(checks.UPDATE_COARSE, 0.0))
    return None if half == 0 else run.episode(checks.UPDATE_LOST, lambda shares: shares > LOST_SHARE, 2)


def transient(run: RunHistory) -> Detection | None:
    """A gradient far beyond all before, while images and error of that step were as usual."""
    spike = first_spike(run)
    if spike is None or spike.by_batch:
        return None
    return Detection(
        spike.step,
        f"At step {spike.step:,} the gradient was {spike.factor:.3g} times the largest of the steps before, while the "
        "error of the batch was as usual: it is not the batch's gradient. A bit flipped, or something wrote into it.",
        (Evidence(GRADIENT_NORM.name, spike.factor, (spike.step, spike.step), "1"),),
        ("a hard batch: its error was as usual",),
        confidence=0.99,
    )


RULES = (
    error_rule(
        "PRE001",
        "precision.scale-halving",
        "A loss scale that is halved without end",
        what="fp16 overflows at nearly every step, whatever the scale: activations of some layer exceed 65,504.",
        why="No update is made, and nothing is learnt.",
        similar="A few halvings at the start are the search for the scale. A NaN that does not come from fp16 is not "
        "marked as overflow (LOS001).",
        limits="Gradients that vanish in fp16 instead of overflowing.",
        fix="Train in bf16, or in fp32 where the device has no bf16.",
        default_fix=Fix("", {"train.precision": "bf16"}, "safe"),
        needs=(AtLeast(REFUSED, STORM_STEPS),),
        detect=scale_halving,
        logs=LogNeed("every step"),
    ),
    error_rule(
        "PRE002",
        "precision.no-scaler",
        "fp16 without a loss scale",
        what="Gradients that fp16 cannot hold are rounded to zero.",
        why="Layers with small gradients stop learning.",
        similar="A clipped gradient is small and not zero.",
        limits="Networks whose gradients fit into fp16.",
        fix="A GradScaler, or bf16.",
        needs=(checks.REPLAY_VANISHED, checks.REPLAY_COSINE),
        detect=on_episode(
            vanished,
            lambda run, _: (
                f"Training in fp16 without a loss scale: {float(run.numbers(checks.REPLAY_VANISHED).max()):.1%} of the "
                "gradient's values are rounded to 0."
            ),
            latest={checks.REPLAY_VANISHED: "below 0.01"},
            can_end=False,
        ),
    ),
    error_rule(
        "PRE003",
        "precision.lost-updates",
        "Updates that are rounded away",
        what="Weights of 16 bits do not move, because updates are smaller than their rounding.",
        why="The training stops long before it has converged.",
        similar="Without any update (OPT001) no weight moves at all.",
        fix="Keep the weights in fp32 and use autocast for the forward pass.",
        needs=(checks.UPDATE_LOST,),
        detect=on_episode(
            lost_updates,
            lambda run, _: (
                f"{float(np.median(run.numbers(checks.UPDATE_LOST))):.0%} of the weights with a gradient did not move: "
                "they are kept in 16 bits, and updates smaller than a rounding step are lost."
            ),
            latest={checks.UPDATE_LOST: "below 0.01", checks.UPDATE_COARSE: "0"},
        ),
    ),
    warning_rule(
        "PRE004",
        "precision.transient",
        "A spike of the gradient alone",
        what="One gradient is many times larger than all before, though the error of its batch is as usual.",
        why="One such update can undo the training.",
        similar="A bad batch has a large error as well.",
        limits="Errors within a few times of the usual.",
        fix="With --heal the step is repeated. If it happens often, test the machine's memory.",
        needs=(AtLeast(GRADIENT_NORM, USUAL_STEPS + 1), LOSS),
        detect=transient,
        explained_by="lr.jump lr.too-high lr.no-warmup data. scale. optimizer. loss.weighting",
    ),
)
