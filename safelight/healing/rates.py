"""Which learning rate a run can take: a few updates with each, from the weights it begins with or goes back to."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from safelight import checks
from safelight.config.tree import WARMUP_SHARE, Optimizer
from safelight.diagnosis.definitions import SAFE_RATE_SHARE
from safelight.words import round_rate

# Rates that are tried, and how often as many smaller ones are, where only the smallest will do
HALVINGS_PER_ROUND, MAX_ROUNDS = 9, 4
UPDATES_PER_RATE = 32  # with each: after 16 the noise of the first ones still shows, and 64 rank the rates alike
HARDLY_WORSE_FACTOR = 1.02
MAX_WARMUP_SHARE = 0.5  # of the run

# Before the first step. Errors are those over the zero predictor's.
SUSPECT_ERROR = 1.5  # after one update at the full rate; healthy rates have 0.94 to 1.04
STABLE_ERROR = 1.25  # during the updates with a lower rate
TRIAL_UPDATES, TRIAL_WARMUP = 8, 4  # updates
MAX_TRIED_RATES, MAX_SECONDS = 6, 20.0


def try_rates(settings: Optimizer, loss_after: Callable[[Optimizer, int], float]) -> dict[float, float]:
    """The loss after some updates, by the factor on the learning rate. `loss_after`: settings and number of updates to
    the loss of the fixed set, always from the same weights."""
    found: dict[float, float] = {}
    while not found or (choose_cut(found) == min(found) and len(found) < HALVINGS_PER_ROUND * MAX_ROUNDS):
        for _ in range(HALVINGS_PER_ROUND):
            factor = 0.5 ** (len(found) + 1)
            # At full rate from the first update: a warmup would hide what it leads to.
            found[factor] = loss_after(replace(settings, lr=settings.lr * factor, warmup=0), UPDATES_PER_RATE)
    return found


def find_rate(settings: Optimizer, worst_error: Callable[[Optimizer, int, float], float]) -> dict[str, float]:
    """Empty for a rate that holds, else readings with the first lower one that does. `worst_error`: settings, a number
    of updates and a limit to the largest error after an update, over the zero predictor's; it may end at the limit."""
    until = time.monotonic() + MAX_SECONDS
    error = worst_error(replace(settings, warmup=0), 1, SUSPECT_ERROR)
    if error <= SUSPECT_ERROR:
        return {}
    readings: dict[str, float] = {checks.TRIAL_RATE: settings.lr, checks.TRIAL_ERROR: error}
    for rate in lower_rates(settings.lr, error):
        if worst_error(replace(settings, lr=rate, warmup=TRIAL_WARMUP), TRIAL_UPDATES, STABLE_ERROR) <= STABLE_ERROR:
            return readings | {checks.TRIAL_STABLE_RATE: rate}
        if time.monotonic() > until:
            break
    return readings


def lower_rates(rate: float, error: float) -> Iterator[float]:
    """Rates to try after one that led to an error, which grows with the square of the rate."""
    start = SAFE_RATE_SHARE * rate / math.sqrt(error) if math.isfinite(error) else rate / 1000
    return (round_rate(start * SAFE_RATE_SHARE**attempt) for attempt in range(MAX_TRIED_RATES))


def choose_cut(losses: Mapping[float, float]) -> float:
    """The factor on the learning rate, by the loss that each one tried led to: the largest that is hardly worse than
    the best. Smaller ones always look a little better, because their updates are less noisy."""
    finite = {factor: loss for factor, loss in losses.items() if math.isfinite(loss)}
    if not finite:
        return min(losses)
    best = min(finite.values())
    return max(factor for factor, loss in finite.items() if loss <= best * HARDLY_WORSE_FACTOR)


def longer_warmup(warmup: int, step: int, steps: int) -> int | None:
    """Twice as long where a run diverged within its warmup, or before as many steps had passed again."""
    usual = max(warmup, math.ceil(steps * WARMUP_SHARE))
    if step >= 2 * usual:
        return None
    return max(warmup, min(2 * usual, math.floor(steps * MAX_WARMUP_SHARE)))
