"""Histories for the rules of system.py: sick, healthy and nearly sick."""

from __future__ import annotations

import numpy as np
import pytest
from histories import Series, checks, measured
from rule_rows import NO_GRADIENT, Row, case_of, check_row, fires_in, parameters, row

from safelight.diagnosis.doctor import examine
from safelight.diagnosis.rules import system

WAITS = np.arange(0, 128, 16)

ROLLS = np.arange(0, 256, 64)


def rolled(**numbers: float) -> Series:
    """The same at every roll call."""
    return measured(**{f"distributed__{name}": (ROLLS, np.full(4, number)) for name, number in numbers.items()})


OURS = {"train.steps": 2000}
ROWS = [
    row("with gradients", "system.sampling-with-gradients", checks(sampler__with_gradients=1)),
    row("starved", "system.starved-loader:warning", measured(speed__data_wait=(WAITS,
        [0.01, 0.01, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7]))),
    row("a foreign loop on a busy machine", "system.starved-loader:info", measured(speed__data_wait=(WAITS,
        [0.01, 0.01, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4]))),
    row("our own loader that is slow", "system.starved-loader:warning", measured(speed__data_wait=(WAITS,
        [0.01, 0.01, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4])), settings={"train.steps": 2000}),
    row("a slow start", "", measured(speed__data_wait=(WAITS, [0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.1, 0.1]))),
    row("all processes agree", "", rolled(drift=0, same_noise=0, overlap=0)),
    row("one process drifts", "distributed.drift", measured(distributed__drift=(ROLLS, [0, 0, 1, 1]))),
    row("a drift that was mended", "distributed.drift", measured(distributed__drift=(ROLLS, [0, 2, 0, 0]))),
    row("two processes with one seed", "distributed.same-noise:warning", rolled(same_noise=1)),
    row("our own, with one seed", "distributed.same-noise:error", rolled(same_noise=1), settings=OURS),
    row("the same noise once", "", measured(distributed__same_noise=(ROLLS, [0, 1, 0, 0]))),
    row("all processes have the same rows", "distributed.overlap:warning", rolled(overlap=1)),
    row("some rows of a loop that draws with replacement", "", rolled(overlap=0.3)),
    row("some rows of our own", "distributed.overlap:error", rolled(overlap=0.3), settings=OURS),
    row("gradients and data of one kind", "", rolled(gradients=0, reduction=1, data__00=0.2, data__01=0.2)),
    row("gradients that are not averaged", "distributed.not-reduced:error", rolled(gradients=1)),
    row("weights drift, for gradients are not averaged", "distributed.not-reduced",
        rolled(gradients=1) | measured(distributed__drift=(ROLLS, [0, 1, 1, 1]))),
    row("no gradient, for FSDP keeps them", "distributed.not-reduced", NO_GRADIENT | rolled(gradients=2)),
    row("a sum over two processes", "distributed.summed:warning", rolled(reduction=2)),
    row("a sum, with Adam", "distributed.summed:info", rolled(reduction=2) | checks(optimizer__adaptive=1)),
    row("a sum once", "", measured(distributed__reduction=(ROLLS, [1, 2, 1, 1]))),
    row("a mean that was clipped", "", rolled(reduction=0.1)),
    row("one process with other data", "distributed.other-data:warning", rolled(data__00=0.1, data__01=1.7)),
    row("data that differs for two looks", "", measured(distributed__data__01=(ROLLS, [1.7, 1.7, 0.4, 0.3]))),
    row("a straggler", "distributed.straggler", rolled(slowest=2.4, waiting=0.4, seconds__00=0.1, seconds__01=0.3)),
    row("slow for two looks", "",
        rolled(waiting=0.4) | measured(distributed__slowest=(ROLLS, [2.4, 2.4, 1.1, 1.1]))),
    row("slow, and nobody waits", "", rolled(slowest=2.4, waiting=0.05)),
    row("a slow network", "", rolled(slowest=1.1, waiting=0.6)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "words"), [("starved", "num_workers of the DataLoader"), ("our own loader that is slow", "data.cache")]
)
def test_a_loader_is_helped_by_what_the_loop_has(name: str, words: str) -> None:
    [finding] = examine(case_of(next(each for each in ROWS if each.name == name)))
    assert words in finding.fix.text
    assert finding.fix.set == ({"data.workers": 4} if "cache" in words else {})


@pytest.mark.parametrize("given", parameters(ROWS))
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    check_row(given)


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in system.RULES}
