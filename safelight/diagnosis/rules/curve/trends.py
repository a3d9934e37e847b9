"""A loss that rises slowly, goes up and down, or stays where it began."""

from __future__ import annotations

import numpy as np

from safelight import checks
from safelight.diagnosis import loss_shapes as shapes
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.rule import AtLeast, Detection, warning_rule
from safelight.diagnosis.rules.curve.jumps import curve, spike
from safelight.diagnosis.rules.learning import CAUSES_OF_DAMAGE, has_short_updates
from safelight.diagnosis.rules.loss.divergence import diverged, is_constant
from safelight.diagnosis.run_history import MIN_STEPS, MIN_STEPS_AT_RATE, RunHistory, stays_at_first
from safelight.diagnosis.spacing import LogNeed
from safelight.vocabulary import LEARNING_RATE, LOSS, SKILL_RAW
from safelight.words import round_rate

RISE = 1.25  # times the lowest block: less harms nobody; no healthy curve rises, by any factor
SWING = 1.5  # times; no healthy curve oscillates, by any factor


def rise(run: RunHistory) -> Detection | None:
    steps, losses = curve(run)
    found = shapes.rises(losses, RISE) if len(losses) and diverged(run) is None else None
    jump = None if found is None else spike(run)
    if found is None or oscillation(run) is not None or (jump is not None and jump.ended_at is None):
        return None
    first = int(steps[found.first])
    return Detection(
        first,
        f"The loss has risen slowly from {found.lowest:.3g}, around step {first:,}, to {found.latest:.3g}.",
        (Evidence(LOSS.name, found.latest, (first, int(steps[-1])), f"about {found.lowest:.2g}"),),
        ("chance: the ranks of single losses differ by more than draws of timesteps explain",),
        confidence=0.99,
        fix=_lower(run, first, "Return to a checkpoint from around that step"),
    )


def oscillation(run: RunHistory) -> Detection | None:
    steps, losses = curve(run)
    found = shapes.oscillates(losses, SWING) if len(losses) and diverged(run) is None else None
    if found is None:
        return None
    first, last = int(steps[found.first]), int(steps[found.last])
    return Detection(
        first,
        f"The loss went up and down {found.swings} times in turn, by a factor of {found.factor:.3g}, from step "
        f"{first:,} to {last:,}.",
        (Evidence(LOSS.name, found.factor, (first, last), "below 1.5 times"),),
        ("draws of timesteps: neighbouring losses differ by far less",),
        confidence=0.99,
        fix=_lower(run, last, "Shuffle the images anew in every epoch"),
        ended_at=last + 1 if len(losses) - found.last > (found.last - found.first) else None,
    )


def _lower(run: RunHistory, step: int, also: str) -> Fix | None:
    """A third of the rate, which is between the usual halves and fifths."""
    steps, rates = run.series(LEARNING_RATE)
    if not len(rates) or not rates.max() > 0:
        return None
    rate = round_rate(float(rates[min(int(np.searchsorted(steps, step)), len(rates) - 1)]) / 3)
    decay = ", and let it decay: it was constant" if is_constant(rates) else ""
    return Fix(f"Lower the learning rate to about {rate:g}{decay}. {also}.", {"optimizer.lr": rate})


def plateau(run: RunHistory) -> Detection | None:
    """Where nothing tells more: no skill, no search along the update, and updates that are not short."""
    if len(run.steps(SKILL_RAW)) or len(run.steps(checks.LINE_SEARCH_RATIO["1"])) or has_short_updates(run):
        return None
    stay = stays_at_first(run)
    if stay is None:
        return None
    return Detection(
        0,
        f"The loss is {stay.latest:.3g} after {stay.steps:,} steps, and was {stay.first:.3g} at first: that of a "
        "network that always predicts 0, where noise is predicted. Nothing is learnt.",
        (Evidence(LOSS.name, stay.latest, (0, stay.last), "below 0.9"),),
        ("a trained model that is trained on: its loss is lower, and differs by timestep",),
        confidence=0.9,
    )


RULES = (
    warning_rule(
        "CUR003",
        "loss.rise",
        "A loss that rises slowly",
        what="The loss of the last eighth of the run is higher than it was before, by a quarter or more.",
        why="The training undoes what it had learnt.",
        similar="A divergence multiplies the loss (LOS007); a spike begins at one step (CUR001).",
        limits="Runs of less than 128 steps. Tasks that become harder on purpose: higher resolution, other timesteps.",
        fix="Return to a checkpoint from before, lower optimizer.lr and let it decay.",
        needs=(AtLeast(LOSS, shapes.BLOCKS * shapes.MIN_BLOCK),),
        detect=rise,
        logs=LogNeed("single"),
        explained_by=CAUSES_OF_DAMAGE,
    ),
    warning_rule(
        "CUR004",
        "loss.oscillation",
        "A loss that goes up and down",
        what="The loss rises and falls again several times, by more than a half of itself and than chance explains.",
        why="Updates overshoot, or neighbouring batches are too alike to learn from.",
        similar="Single losses always scatter: they depend on the timesteps that were drawn.",
        limits="Waves shorter than eight steps.",
        fix="Lower optimizer.lr by a factor of 2 to 5, and shuffle the images anew in every epoch.",
        needs=(AtLeast(LOSS, shapes.MIN_LOSSES_BEFORE + 1),),
        detect=oscillation,
        logs=LogNeed("single"),
        explained_by=f"{CAUSES_OF_DAMAGE} data.not-shuffled",
    ),
    warning_rule(
        "CUR005",
        "loss.plateau",
        "A loss that stays where it began",
        what="After hundreds of steps the loss is still 1, that of a network which predicts no noise at all.",
        why="Nothing is learnt.",
        similar="Where updates are too short it is lr.too-low; without a gradient, loss.detached.",
        limits="Networks that predict something else than noise: their loss at the start is another one.",
        fix="Is the model that is trained the one that is called, with this x_t and this t? If so, raise optimizer.lr.",
        needs=(LOSS, (AtLeast(LEARNING_RATE, MIN_STEPS_AT_RATE), AtLeast(LOSS, MIN_STEPS))),
        detect=plateau,
        logs=LogNeed("every step"),  # a mean over steps hides how losses differ by timestep
        explained_by=CAUSES_OF_DAMAGE,
    ),
)
