"""How a step is made: a pure function of the config, the journal and the step, so that a resume repeats it exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from safelight.config import Config
from safelight.config.tree import Optimizer, Precision
from safelight.healing.journal import Act


@dataclass(frozen=True, slots=True)
class StepSettings:
    """How a step is made. Without acts: as the config says."""

    optimizer: Optimizer  # its learning rate and warmup
    precision: Precision
    micro_batches: int
    quarantined: frozenset[int]
    """Dataset indices that are not drawn."""
    keeps_train_mode: bool
    """Modules that leave train mode are returned to it before every step."""


def configured_micro_batches(config: Config) -> int:
    """The micro-batches of a step; 1 while `auto` is not resolved."""
    return 1 if config.train.accumulate == "auto" else int(config.train.accumulate)


def configured_precision(config: Config) -> Precision:
    """`fp32` while `auto` is not resolved."""
    return "fp32" if config.train.precision == "auto" else config.train.precision


def effective_settings(config: Config, acts: Sequence[Act], step: int) -> StepSettings:
    precision, micro_batches = configured_precision(config), configured_micro_batches(config)
    found = StepSettings(config.optimizer, precision, micro_batches, frozenset(), False)
    for act in acts:
        if act.is_active(step):
            found = _after(found, act)
    return found


def _after(before: StepSettings, act: Act) -> StepSettings:
    facts = act.facts
    match act.kind:
        case "redo":  # changes nothing that comes after
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
            return replace(before, keeps_train_mode=True)


def next_micro_batches(batch: int, micro_batches: int) -> int | None:
    """The next larger number that divides a batch evenly: twice as many where that is possible."""
    return next((n for n in range(2 * micro_batches, batch + 1) if batch % n == 0), None)
