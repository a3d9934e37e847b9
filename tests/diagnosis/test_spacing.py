"""Logs are told apart: every step or not, single or smoothed, fine or coarse; and rules look only where they may."""

from __future__ import annotations

import numpy as np
import pytest
from loggings import loggings
from loss_curves import healthy_curve

from safelight.diagnosis.rule import needed
from safelight.diagnosis.rules import RULES
from safelight.diagnosis.spacing import LogNeed, Spacing, spacing_of
from safelight.vocabulary import LOSS


def spacing_by(name: str, seed: int = 3) -> Spacing:
    losses = healthy_curve(seed, 1000, 8)
    rows = dict(loggings(losses, np.ones(1000), np.ones(1000)))[name]
    column = next(key for key in rows[0] if "loss" in key)
    steps = np.array([row.get("step", place) for place, row in enumerate(rows)])
    return spacing_of(steps, np.array([float(row[column]) for row in rows]), known="step" in rows[0])


@pytest.mark.parametrize(
    ("name", "every", "single"),
    [
        ("each", 1, True),
        ("one in 10", 10, True),
        ("mean of 10", 10, True),
        ("EMA of 0.5", 1, False),
        ("EMA of 0.9", 1, False),
        ("moving mean", 1, False),
        ("running mean", 1, False),
        ("no steps", None, True),
        ("uneven", None, True),
    ],
)
def test_how_readings_lie(name: str, every: int | None, single: bool) -> None:
    found = spacing_by(name)
    assert (found.every, found.single, found.fine) == (every, single, True)


@pytest.mark.parametrize(
    ("digits", "level", "fine"), [(2, 1.0, True), (2, 0.05, False), (3, 0.05, True), (4, 0.01, True)]
)
def test_coarse_losses_are_noticed(digits: int, level: float, fine: bool) -> None:
    losses = np.round(level * np.exp(0.3 * np.random.default_rng(0).standard_normal(500)), digits)
    assert spacing_of(np.arange(500), losses, known=True).fine == fine


EACH = Spacing(1, True)


@pytest.mark.parametrize(
    ("need", "spacing", "reason"),
    [
        (LogNeed(), Spacing(None, False), None),
        (LogNeed("single"), Spacing(50, True), None),
        (LogNeed("single"), Spacing(1, False), "smoothed"),
        (LogNeed("single"), Spacing(1, True, fine=False), "more digits"),
        (LogNeed("every step"), EACH, None),
        (LogNeed("every step"), Spacing(50, True), "the log has one in 50 steps"),
        (LogNeed("every step"), Spacing(None, True), "not evenly apart"),
        (LogNeed("known steps"), Spacing(None, True), None),
        (LogNeed("known steps"), Spacing(None, True, known=False), "which step"),
    ],
)
def test_what_a_rule_needs(need: LogNeed, spacing: Spacing, reason: str | None) -> None:
    found = need.lacking(spacing)
    assert found is None if reason is None else reason in (found or "")


def test_rules_that_need_more_than_a_log_can_hold_do_not_claim_to_look() -> None:
    """Every rule that looks at logs needs only signals that a log may have."""
    held = {"loss/mean", "optimizer/lr", "gradient/norm", "update/refused"}
    for rule in RULES:
        if rule.logs is not None:
            needs = [need if isinstance(need, tuple) else (need,) for need in rule.needs]
            names = [{needed(each) for each in group} for group in needs]
            assert all(group & held for group in names), rule.code
    assert LOSS.name in held
