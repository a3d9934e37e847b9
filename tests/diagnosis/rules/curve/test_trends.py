"""Histories of losses that rise, oscillate or stay: sick, healthy and nearly sick."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from histories import Series, measured
from loss_curves import healthy_curve, rising, stuck_at_noise, waving
from rule_rows import Row, case_of, check_row, fires_in, parameters, row

from safelight.diagnosis.doctor import examine
from safelight.diagnosis.rules.curve import trends

CALM = healthy_curve(7, steps=400, batch=64)
NOISE = stuck_at_noise(0)


def only_loss(losses: np.ndarray, **rest: Any) -> Series:
    return measured(loss__mean=(np.arange(len(losses)), losses), **rest)


def rates(losses: np.ndarray, lowest: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(len(losses)), np.linspace(lowest, 1.0, len(losses)) * 1e-3


def updates(size: float) -> Series:
    return measured(update__ratio__conv_in=([0, 64, 128], np.full(3, size)))


ROWS = [
    row("three times the loss in two hundred steps", "loss.rise", only_loss(rising(CALM)), whole=True),
    row("a tenth more in two hundred steps", "", only_loss(rising(CALM, 1.1)), whole=True),
    row("four waves", "loss.oscillation", only_loss(waving(CALM)), whole=True),
    row("four small waves", "", only_loss(waving(CALM, 1.2)), whole=True),
    row("one wave", "", only_loss(waving(CALM, 3.0, 1)), whole=True),
    row("noise and nothing else", "loss.plateau", only_loss(NOISE), whole=True),
    row("noise, with updates as usual", "loss.plateau", only_loss(NOISE) | updates(4e-3), whole=True),
    row("noise, with tiny updates", "lr.too-low",
        only_loss(NOISE, optimizer__lr=rates(NOISE)) | updates(1e-6), whole=True),
    row("noise of two hundred steps, the rate is not known", "", only_loss(NOISE[:300]), whole=True),
    row("noise while the rate rises", "",
        only_loss(NOISE[:300], optimizer__lr=rates(NOISE[:300], 0.0)) | updates(1e-6), whole=True),
    row("a trained model that is trained on", "",
        only_loss(np.tile(healthy_curve(0, steps=800, batch=64)[-200:], 4)), whole=True),
    row("noise that is slowly learnt", "", only_loss(NOISE * np.linspace(1, 0.85, len(NOISE))), whole=True),
]  # fmt: skip


@pytest.mark.parametrize("given", parameters(ROWS))
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    check_row(given)


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in trends.RULES}


def test_no_healthy_curve_has_a_finding() -> None:
    """All rules of the doctor, on the loss alone."""
    named = {
        seed: [finding.cause for finding in examine(case_of(row("", "", only_loss(healthy_curve(seed)), whole=True)))]
        for seed in range(1000, 1300)
    }
    assert {seed: causes for seed, causes in named.items() if causes} == {}


def named(series: Series) -> Any:
    return examine(case_of(row("", "", series, whole=True)))[0]


def test_a_constant_rate_is_told() -> None:
    constant, decayed = (only_loss(rising(CALM), optimizer__lr=rates(CALM, lowest)) for lowest in (1.0, 2.0))
    assert "constant" in named(constant).fix.text
    assert "constant" not in named(decayed).fix.text
