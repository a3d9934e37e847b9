"""Which learning rate a diverged run can bear: a few updates with each, from the weights it goes back to."""

from __future__ import annotations

import math
from dataclasses import replace

from safelight.checkpoints.snapshot import Loaded
from safelight.config.tree import Optimizer
from safelight.healing.treatment import choose_cut
from safelight.training.build import Parts

HALVINGS, ROUNDS = 9, 4  # rates that are tried, and how often as many smaller ones are, where only the smallest will do
UPDATES = 32  # with each: after 16 the noise of the first ones still shows, and 64 rank the rates alike


def try_rates(parts: Parts, loaded: Loaded, settings: Optimizer) -> dict[float, float]:
    """The loss of the fixed probe after some updates, by the factor on the learning rate. The state is that of the
    checkpoint afterwards."""
    stepper = parts.stepper
    kept = stepper.judge, stepper.monitors, stepper.inspection, stepper.optimizer_settings
    stepper.judge = stepper.monitors = stepper.inspection = None
    found: dict[float, float] = {}
    try:
        while not found or (choose_cut(found) == min(found) and len(found) < HALVINGS * ROUNDS):
            for _ in range(HALVINGS):
                factor = 0.5 ** (len(found) + 1)
                # At full rate from the first update: a warmup would hide what it leads to.
                stepper.optimizer_settings = replace(settings, lr=settings.lr * factor, warmup=0)
                found[factor] = _loss_after_updates(parts, loaded.step)
                parts.state.restore(loaded)
    finally:
        stepper.judge, stepper.monitors, stepper.inspection, stepper.optimizer_settings = kept
    return found


def _loss_after_updates(parts: Parts, first: int) -> float:
    for step in range(first, min(first + UPDATES, parts.config.train.steps)):
        view = parts.stepper.take([micro.moved(parts.engine.send) for micro in parts.feed.prepare(step)], step)
        if bool(view.refused) and not parts.state.scale.active:
            return math.inf
    return parts.engine.group.broadcast(lambda: parts.fixed_set.losses(parts.state)[0])
