"""Every rule is listed once, with the truth about it."""

from __future__ import annotations

from histories import HEALTHY, checks

from safelight.diagnosis.coverage import coverage
from safelight.diagnosis.doctor import Diagnosis, examine, raised_by
from safelight.diagnosis.rule_states import REASONS, RuleState, grouped, list_rules, reason_for
from safelight.diagnosis.rules import RULES
from safelight.diagnosis.run_history import InMemoryReadings, RunHistory, name_of


def states(series: dict) -> dict[str, RuleState]:
    run = RunHistory(InMemoryReadings(series))
    listed = list_rules(run, Diagnosis(examine(run), coverage(run)))
    assert [each.code for each in listed] == [rule.code for rule in RULES]
    return {each.code: each for each in listed}


def test_a_run_without_readings_passes_nothing_that_needs_one() -> None:
    listed = states({})
    assert {each.state for each in listed.values() if each.code in with_needs()} == {"not looked at"}
    assert all(each.reason for each in listed.values() if each.state == "not looked at")


def with_needs() -> set[str]:
    return {rule.code for rule in RULES if rule.needs}


def test_what_could_look_and_found_nothing_has_passed() -> None:
    listed = states(HEALTHY)
    found = coverage(RunHistory(InMemoryReadings(HEALTHY)))
    assert sum(each.state == "passed" for each in listed.values()) == found.looked
    assert {each.state for each in listed.values()} == {"passed", "not looked at"}


def test_a_consequence_has_not_passed() -> None:
    """Images of 0 to 255 explain much else."""
    sick = HEALTHY | checks(batch__lowest=0.0, batch__highest=255.0, batch__std=70.0, batch__mean=100.0)
    run = RunHistory(InMemoryReadings(sick))
    raised, kept = {rule.code for rule, _ in raised_by(run)}, {finding.code for finding in examine(run)}
    listed = states(sick)
    assert kept
    assert {code for code, each in listed.items() if each.state == "found"} == kept
    assert {code for code, each in listed.items() if each.state == "explained"} == raised - kept
    assert kept <= raised


def test_reasons() -> None:
    assert reason_for(["check/sampler/calls", "check/data/blank"]) == "no sampler is known"
    assert reason_for(["update/ratio"]) == "not measured: update/ratio"
    assert reason_for(["check/answer/unheard", "loss/mean"]) == "not measured: answer/unheard, loss/mean"


def test_every_reason_belongs_to_a_reading_that_a_rule_needs() -> None:
    needed = [
        name_of(each)
        for rule in RULES
        for need in rule.needs
        for each in (need if isinstance(need, tuple) else (need,))
    ]
    assert [start for start, _ in REASONS if not any(name.startswith(start) for name in needed)] == []


def test_codes_are_grouped_by_reason() -> None:
    listed = [
        RuleState(code, "c", "t", "not looked at", reason) for code, reason in (("A", "x"), ("B", "y"), ("C", "y"))
    ]
    assert grouped(listed) == {"y": ["B", "C"], "x": ["A"]}
    assert listed[0].to_json()["reason"] == "x"
