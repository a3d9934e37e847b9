"""What the acts of a journal change at a step."""

from __future__ import annotations

import pytest

from safelight.config import Config
from safelight.config.resolve import resolve
from safelight.healing.journal import Act, Journal
from safelight.healing.step_settings import effective_settings, next_micro_batches


def act(kind: str, since: int = 10, undone: int | None = None, **facts: object) -> Act:
    return Act(1, kind, 20, since, "a reason", facts, undone)  # type: ignore[arg-type]


def config(**settings: object) -> Config:
    return resolve(settings={key.replace("__", "."): value for key, value in settings.items()})


def test_without_acts_a_step_is_made_as_the_config_says() -> None:
    found = effective_settings(config(train__accumulate=4, train__precision="fp16"), (), 0)
    assert found.optimizer is not None
    assert (found.precision, found.micro_batches, found.quarantined, found.keeps_train_mode) == (
        "fp16",
        4,
        frozenset(),
        False,
    )


EFFECTS = {
    "lower rate": (act("lower-rate", factor=0.5, warmup=None), lambda t: t.optimizer.lr, 1e-3, 5e-4),
    "longer warmup": (act("lower-rate", factor=0.5, warmup=99), lambda t: t.optimizer.warmup, None, 99),
    "quarantine": (act("quarantine", samples=[3, 5]), lambda t: t.quarantined, frozenset(), frozenset({3, 5})),
    "precision": (act("change-precision", to="bf16"), lambda t: t.precision, "fp32", "bf16"),
    "micro-batches": (act("halve-batch", micro_batches=2), lambda t: t.micro_batches, 1, 2),
    "mode": (act("restore-mode"), lambda t: t.keeps_train_mode, False, True),
}


@pytest.mark.parametrize(("done", "setting", "before", "after"), EFFECTS.values(), ids=EFFECTS.keys())
def test_an_act_holds_from_its_step_until_it_is_undone(done: Act, setting, before: object, after: object) -> None:
    journal = Journal([done])
    found = {step: setting(effective_settings(config(), journal.acts, step)) for step in (0, 9, 10, 50)}
    assert found == {0: before, 9: before, 10: after, 50: after}
    journal.undo(1, 30)
    found = {step: setting(effective_settings(config(), journal.acts, step)) for step in (9, 10, 29, 30)}
    assert found == {9: before, 10: after, 29: after, 30: before}


def test_a_redone_step_changes_nothing_that_comes_after() -> None:
    assert effective_settings(config(), [act("redo")], 10) == effective_settings(config(), (), 10)


def test_cuts_multiply_and_micro_batches_do_not() -> None:
    acts = [act("lower-rate", factor=0.5, warmup=None), act("lower-rate", factor=0.25, warmup=None)]
    acts += [act("halve-batch", micro_batches=2), act("halve-batch", micro_batches=4)]
    found = effective_settings(config(optimizer__lr=1.0), acts, 10)
    assert (found.optimizer.lr, found.micro_batches) == (0.125, 4)


@pytest.mark.parametrize(("batch", "now", "expected"), [(8, 1, 2), (12, 2, 4), (9, 1, 3), (8, 8, None), (7, 1, 7)])
def test_micro_batches_share_the_batch_evenly(batch: int, now: int, expected: int | None) -> None:
    assert next_micro_batches(batch, now) == expected
