"""What the acts of a journal change at a step: a pure function, so that a resume does exactly the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from safelight.config import Config
from safelight.config.tree import Optimizer, Precision
from safelight.healing.journal import Act

HARDLY_WORSE = 1.02
SHARE_OF_RUN, LONGEST_WARMUP = 0.08, 0.5  # of the run: a warmup as it usually is, and as long as it may become


@dataclass(frozen=True, slots=True)
class Treatment:
    """How a step is made. Without acts: as the config says."""

    optimizer: Optimizer  # its learning rate and warmup
    precision: Precision
    micro_batches: int
    quarantined: frozenset[int]
    """Dataset indices that are not drawn."""
    keeps_mode: bool
    """Modules that leave train mode are put back into it before every step."""


def prescribe(config: Config, acts: Sequence[Act], step: int) -> Treatment:
    micro_batches = int(config.train.accumulate if config.train.accumulate != "auto" else 1)
    found = Treatment(config.optimizer, config.train.precision, micro_batches, frozenset(), False)
    for act in acts:
        if act.holds(step):
            found = _under(found, act)
    return found


def _under(before: Treatment, act: Act) -> Treatment:
    facts = act.facts
    match act.kind:
        case "redo":  # it is done, and changes nothing that comes after
            return before
        case "quarantine":
            return replace(before, quarantined=before.quarantined | frozenset(facts["samples"]))
        case "lower-rate":
            lower = replace(before.optimizer, lr=before.optimizer.lr * facts["factor"])
            longer = facts["warmup"]
            return replace(before, optimizer=lower if longer is None else replace(lower, warmup=longer))
        case "change-precision":
            return replace(before, precision=facts["to"])
        case "halve-batch":
            return replace(before, micro_batches=facts["micro_batches"])
        case "restore-mode":
            return replace(before, keeps_mode=True)


def choose_cut(losses: Mapping[float, float]) -> float:
    """The factor on the learning rate, out of those that were tried, by the loss each led to: the largest that is
    hardly worse than the best. Smaller ones always look a little better, because the noise of the updates is less."""
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


def next_micro_batches(batch: int, micro_batches: int) -> int | None:
    """The next larger number that shares a batch evenly: twice as many where that is possible."""
    more = [n for n in range(2 * micro_batches, batch + 1) if batch % n == 0]
    return more[0] if more else None
