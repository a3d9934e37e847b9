"""Verdicts by hand, and what the score makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gauntlet.scenario import Verdict
from gauntlet.score import baselines, judge, rule_of_three, score, wilson

Say = Callable[..., Verdict]
SCALE = (("scale.range-0-1", "scale.outside"),)
THREE = [(f"lr.{n}", "error", 1) for n in "abc"]
BOTH = (("scale.range-0-1",), ("ema.frozen",))


@pytest.mark.parametrize(
    ("said", "causes", "expected"),
    [
        ([("scale.range-0-1", "error", 1)], SCALE, (True, True, True, True)),
        ([("scale.outside", "warning", 1)], SCALE, (True, True, True, True)),  # an accepted synonym
        ([("scale.integer", "error", 1)], SCALE, (True, False, False, True)),  # the subsystem only
        ([("lr.too-high", "error", 1)], SCALE, (True, False, False, False)),
        ([("lr.too-high", "error", 1), ("scale.range-0-1", "error", 1)], SCALE, (True, False, True, False)),
        ([*THREE, ("scale.range-0-1", "error", 1)], SCALE, (True, False, False, False)),
        ([("scale.range-0-1", "info", 1)], SCALE, (False, False, False, False)),  # an info is no alarm
        ([], SCALE, (False, False, False, False)),
        ([("ema.frozen", "error", 1), ("scale.range-0-1", "error", 1)], BOTH, (True, True, True, True)),
        ([("scale.range-0-1", "error", 1)], BOTH, (True, False, False, True)),  # one of two
    ],
)  # fmt: skip
def test_a_cause_counts_by_its_place(verdict: Say, said: Any, causes: Any, expected: tuple[bool, ...]) -> None:
    found = judge(verdict("faulty", said, causes=causes), None)
    assert (found.detected, found.top1, found.top3, found.subsystem) == expected


def test_what_the_twin_has_too_is_no_detection(verdict: Say) -> None:
    twin = verdict("twin", [("scale.range-0-1", "warning", 1)])
    sick = verdict("faulty", [("scale.range-0-1", "warning", 1), ("lr.zero", "error", 3)], causes=(("lr.zero",),))
    assert not judge(verdict("faulty", [("scale.range-0-1", "warning", 1)], causes=SCALE), twin).detected
    assert judge(sick, twin).top1


def test_latency_counts_from_the_fault(verdict: Say) -> None:
    late = verdict("faulty", [("lr.jump", "error", 100)], causes=(("lr.jump",),), begin=90)
    early = verdict("faulty", [("lr.jump", "error", 1)], causes=(("lr.jump",),))
    assert judge(late, None).latency == 10
    assert not judge(late, None).before_update
    assert judge(early, None).before_update
    assert judge(verdict("faulty", [], causes=SCALE), None).latency is None


def test_the_right_cause_is_timed_not_the_first_alarm(verdict: Say) -> None:
    said = [("lr.too-high", "error", 1), ("scale.outside", "error", 30)]
    assert judge(verdict("faulty", said, causes=SCALE), None).latency == 30


def test_alarms_on_healthy_runs_are_counted_with_their_bound(verdict: Say) -> None:
    well = [verdict("healthy", [], id=f"recipe-{n}") for n in range(300)]
    assert score(well).false_alarm_bound == pytest.approx(0.01, abs=0.0005)  # the rule of three
    loud = [*well, verdict("healthy", [("lr.zero", "warning", 3)], id="loud")]
    assert [each.id for each in score(loud).false_alarms] == ["loud"]
    assert score([*well, verdict("twin", [("lr.zero", "info", 3)])]).false_alarms == []


def test_runs_of_one_fault_are_one_fault(verdict: Say) -> None:
    seen = [("scale.outside", "error", 1)]
    runs = [verdict("faulty", seen, causes=SCALE, id="many", seed=seed) for seed in range(9)]
    runs += [verdict("faulty", [], causes=SCALE, id="other@2")]
    assert (score(runs).share("top1").count, score(runs).share("top1").of) == (9, 10)
    assert (score(runs).by_fault("top1").count, score(runs).by_fault("top1").of) == (1, 2)


def test_misses_name_what_was_said_instead(verdict: Say) -> None:
    runs = [
        verdict("faulty", [("lr.zero", "error", 1)], causes=SCALE),
        verdict("faulty", [], causes=SCALE, seed=1),
        verdict("faulty", [("scale.outside", "error", 1)], causes=SCALE, seed=2),
    ]
    assert score(runs).confusions() == {("scale.range-0-1", "lr.zero"): 1, ("scale.range-0-1", "nothing"): 1}


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [(18, 20, 0.699, 0.972), (0, 20, 0.0, 0.161), (20, 20, 0.839, 1.0), (0, 0, 0.0, 1.0)],
)
def test_wilson(count: int, of: int, low: float, high: float) -> None:
    assert wilson(count, of) == pytest.approx((low, high), abs=0.001)


def test_rule_of_three() -> None:
    assert rule_of_three(600) == pytest.approx(0.005, abs=0.0001)
    assert rule_of_three(0) == 1.0


def test_the_guess_that_it_is_the_rate_is_right_as_often_as_it_is_the_rate(verdict: Say) -> None:
    runs = [
        verdict("faulty", [], causes=(("lr.too-high",),)),
        verdict("faulty", [], causes=SCALE, seed=1, baselines=["plateau"]),
        verdict("healthy", [], baselines=["plateau"]),
    ]
    rows = {row.name: row for row in baselines(runs)}
    assert (rows["always the rate"].top1.value, rows["always the rate"].false_alarms.value) == (0.5, 1.0)
    assert (rows["plateau"].detected.value, rows["plateau"].top1.value) == (0.5, 0.0)
