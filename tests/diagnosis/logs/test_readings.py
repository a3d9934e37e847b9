"""A table becomes one run, in order, with what was taken said; and 0 alarms on healthy logs of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from loggings import loggings
from loss_curves import dropped, healthy_curve, rising, spiked, stuck_at_noise, waving

from safelight.diagnosis.coverage import coverage
from safelight.diagnosis.doctor import examine
from safelight.diagnosis.logs.readings import LogReadings, readings_of
from safelight.diagnosis.logs.table import Table
from safelight.diagnosis.rules import RULES
from safelight.diagnosis.run_history import RunHistory
from safelight.errors import UsageError
from safelight.vocabulary import LEARNING_RATE, LOSS

STEPS = np.arange(900)


def read(rows: list[dict[str, Any]], loss: str | None = None) -> LogReadings:
    return readings_of(Table(loss).extend(rows), "log", "rows")


def judged(rows: list[dict[str, Any]]) -> list[str]:
    log = read(rows)
    run = RunHistory(log.readings, spacing=log.summary.spacing)
    looked = coverage(run)
    able = tuple(rule for rule in RULES if rule.code not in looked.missing and rule.code not in looked.unable)
    return [finding.code for finding in examine(run, able)]


def steps_of(rows: list[dict[str, Any]]) -> list[int]:
    return read(rows).readings.raw(LOSS.name)[0].tolist()


@pytest.mark.parametrize("seed", range(50))
def test_no_alarm_on_a_healthy_log(seed: int) -> None:
    """As 750 logs of real trainings had none: see docs/logs.md."""
    losses = healthy_curve(5000 + seed)
    steps = np.arange(len(losses))
    rates = 1e-4 * np.minimum(1, (steps + 1) / 50) * 0.5 * (1 + np.cos(np.pi * steps / len(steps)))
    norms = np.exp(0.4 * np.random.default_rng(seed).standard_normal(len(losses)))
    ways = list(loggings(losses, rates, norms))
    some = [ways[(seed * 3 + place) % len(ways)] for place in range(3)]  # each way some twelve times
    assert {name: found for name, rows in some if (found := judged(rows))} == {}


HEALTHY = healthy_curve(3, 900, 16)
RATES = np.full(900, 1e-4)
ENDED = np.where(STEPS < 500, 1e-4, 0.0)
ANEW = np.interp(STEPS % 450, [0, 100, 900], [0, 1e-4, 0])
SCALES = 2.0 ** np.where(STEPS < 850, 16, 16 - (STEPS - 849))
SICK = {
    "diverged": (HEALTHY * np.exp(np.maximum(0, STEPS - 500) / 60), {}, "LOS007", ("each", "one in 10", "EMA of 0.9")),
    "not finite": (np.where(STEPS < 600, HEALTHY, np.nan), {}, "LOS001", ("each", "one in 50", "no steps")),
    "infinite once": (np.where(STEPS == 600, np.inf, HEALTHY), {}, "LOS001", ("each",)),
    "spike": (spiked(HEALTHY, 35, 300), {}, "CUR001", ("each", "one in 10", "no steps", "uneven")),
    "drop": (dropped(healthy_curve(3, 900, 128)), {}, "CUR002", ("each",)),
    "slow rise": (rising(HEALTHY), {}, "CUR003", ("each", "uneven")),
    "oscillation": (waving(HEALTHY, 4.0), {}, "CUR004", ("each",)),
    "plateau": (stuck_at_noise(1, 900), {}, "CUR005", ("each",)),
    "rate of 0": (stuck_at_noise(1, 900), {"lr": 0 * RATES}, "LRA003", ("each", "one in 10", "one in 50")),
    "rate ended": (HEALTHY, {"lr": ENDED}, "LRA004", ("each", "one in 10")),
    "rate jumps": (HEALTHY, {"lr": np.where(STEPS < 500, 1e-4, 1e-3)}, "LRA005", ("each", "one in 10")),
    "rate begins anew": (HEALTHY, {"lr": ANEW}, "LRA005", ("each", "one in 10")),
    "no gradient": (stuck_at_noise(1, 400), {"grad_norm": np.zeros(900)}, "LOS002", ("each", "one in 10")),
    "gradients grow": (HEALTHY, {"grad_norm": np.exp(STEPS / 100)}, "CLI003", ("each", "one in 10")),
}  # fmt: skip


@pytest.mark.parametrize(("name", "logging"), [(name, each) for name, row in SICK.items() for each in row[3]])
def test_what_is_wrong_is_named(name: str, logging: str) -> None:
    losses, others, code, _ = SICK[name]
    rows = dict(loggings(losses, others.get("lr", RATES), others.get("grad_norm", np.ones(900))))[logging]
    assert judged(rows) == [code]


def test_overflows_are_seen_by_a_scale_that_falls() -> None:
    rows = [{"step": k, "loss": HEALTHY[k], "loss_scale": SCALES[k]} for k in STEPS[:890]]
    assert judged(rows) == ["PRE001"]


def test_zeros_of_rounding_are_no_rate_of_zero() -> None:
    rows = [{"step": k, "loss": HEALTHY[k], "lr": "0.0000"} for k in STEPS]
    assert judged(rows) == []
    rows = [{"step": k, "loss": HEALTHY[k], "lr": "0.0"} for k in STEPS]
    assert judged(rows) == ["LRA003"]


@pytest.mark.parametrize(
    ("steps", "kept", "note"),
    [
        ([0, 1, 2, 3], [0, 1, 2, 3], ""),
        ([3, 2, 1, 0], [0, 1, 2, 3], ""),
        ([0, 1, 2, 3, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4], "2 runs"),
        ([0, 1, 2, 3, 4, 5, 6, 7, 5, 6, 7, 8], [0, 1, 2, 3, 4, 5, 6, 7, 8], "go back 1 time"),
        ([0, 0, 1, 1, 2, 2], [0, 1, 2], ""),
        ([10, 20, 30, 20, 30, 40], [10, 20, 30, 40], "2 runs"),
    ],
)
def test_resumes_and_runs(steps: list[int], kept: list[int], note: str) -> None:
    log = read([{"step": step, "loss": place} for place, step in enumerate(steps)])
    if note == "2 runs" and steps[0] == 10:
        kept = [20, 30, 40]
    assert log.readings.raw(LOSS.name)[0].tolist() == kept
    assert note in " ".join(log.summary.notes)


def test_of_what_was_trained_again_the_later_counts() -> None:
    rows = [{"step": k, "loss": 1.0} for k in range(8)] + [{"step": k, "loss": 2.0} for k in range(5, 9)]
    assert read(rows).readings.raw(LOSS.name)[1].tolist() == [1.0] * 5 + [2.0] * 4


def test_the_rate_of_the_group_that_is_trained() -> None:
    log = read([{"step": k, "loss": 1.0, "lr/text": 0.0, "lr/unet": 1e-4} for k in range(9)])
    assert log.summary.columns == {"loss": "loss", "step": "step", "learning rate": "lr/unet"}
    assert log.readings.raw(LEARNING_RATE.name)[1] == pytest.approx(1e-4)
    assert log.summary.left_out == ("lr/text",)


@pytest.mark.parametrize(
    ("rows", "loss", "words"),
    [
        ([{"step": 1, "accuracy": 0.5}], None, "no column that is called a loss. It has step, accuracy"),
        ([{"step": 1, "gen_loss": 1, "disc_loss": 2}], None, "several losses"),
        ([{"step": 1, "a - loss": 1, "b - loss": 2}], None, "several runs side by side"),
        ([{"step": 1, "loss": 1}], "los", "Did you mean 'loss'"),
    ],
)
def test_what_cannot_be_judged_ends_in_words(rows: list[dict[str, Any]], loss: str | None, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read(rows, loss)


def test_a_column_may_be_named() -> None:
    log = read([{"step": k, "gen_loss": 1.0, "accuracy": 0.5} for k in range(3)], "accuracy")
    assert log.summary.columns["loss"] == "accuracy"


def test_epochs_are_not_steps() -> None:
    log = read([{"epoch": k, "loss": 1.0} for k in range(3)])
    assert not log.summary.spacing.known
    assert "No column of steps" in " ".join(log.summary.notes)
    assert "step" not in log.summary.columns
