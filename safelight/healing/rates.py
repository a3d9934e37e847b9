"""Which learning rate a diverged run can take: a few updates with each, from the weights it goes back to."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from safelight.config.tree import Optimizer

HALVINGS, ROUNDS = 9, 4  # rates that are tried, and how often as many smaller ones are, where only the smallest will do
UPDATES = 32  # with each: after 16 the noise of the first ones still shows, and 64 rank the rates alike
HARDLY_WORSE = 1.02
SHARE_OF_RUN, LONGEST_WARMUP = 0.08, 0.5  # of the run: the usual warmup, and the longest


def try_rates(settings: Optimizer, loss_after: Callable[[Optimizer, int], float]) -> dict[float, float]:
    """The loss after some updates, by the factor on the learning rate. `loss_after`: settings and number of updates to
    the loss of the fixed set, always from the same weights."""
    found: dict[float, float] = {}
    while not found or (choose_cut(found) == min(found) and len(found) < HALVINGS * ROUNDS):
        for _ in range(HALVINGS):
            factor = 0.5 ** (len(found) + 1)
            # At full rate from the first update: a warmup would hide what it leads to.
            found[factor] = loss_after(replace(settings, lr=settings.lr * factor, warmup=0), UPDATES)
    return found


def choose_cut(losses: Mapping[float, float]) -> float:
    """The factor on the learning rate, by the loss that each one tried led to: the largest that is hardly worse than
    the best. Smaller ones always look a little better, because their updates are less noisy."""
    finite = {factor: loss for factor, loss in losses.items() if math.isfinite(loss)}
    if not finite:
        return min(losses)
    best = min(finite.values())
    return max(factor for factor, loss in finite.items() if loss <= best * HARDLY_WORSE)


def longer_warmup(warmup: int, step: int, steps: int) -> int | None:
    """Twice as long where a run diverged within its warmup, or before as many steps had passed again."""
    usual = max(warmup, math.ceil(steps * SHARE_OF_RUN))
    if step >= 2 * usual:
        return None
    return max(warmup, min(2 * usual, math.floor(steps * LONGEST_WARMUP)))
