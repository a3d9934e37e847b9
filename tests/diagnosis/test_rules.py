"""Every rule on hand-written histories: sick, healthy and nearly sick."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from histories import (
    HEALTHY,
    LABELS,
    Event,
    Series,
    checks,
)
from rule_rows import ROWS, Row, case_of

from safelight.checks import Check
from safelight.config.resolve import types_of_fields
from safelight.diagnosis.doctor import LATER, examine, explain
from safelight.diagnosis.finding import Fix, Severity
from safelight.diagnosis.rule import Detection, Rule
from safelight.diagnosis.rules import RULES
from safelight.diagnosis.run_history import InMemoryReadings, RunHistory, episode_of
from safelight.errors import UsageError


def row_of(name: str) -> Row:
    return next(each for each in ROWS if each.name == name)


def causes_of(series: Series, *events: Event) -> list[str]:
    return [finding.cause for finding in examine(RunHistory(InMemoryReadings(HEALTHY | series, events)))]


def parameters() -> list[Any]:
    marks = {each.name: [pytest.mark.xfail(reason=each.wrong)] if each.wrong else [] for each in ROWS}
    return [pytest.param(each, id=each.name, marks=marks[each.name]) for each in ROWS]


@pytest.mark.parametrize("given", parameters())
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    found = examine(case_of(given))
    assert [finding.cause for finding in found] == list(given.causes)
    for finding in found:
        json.dumps(finding.to_json(), allow_nan=False)
        assert finding.evidence
        assert finding.summary.endswith(".")
        assert finding.fix.text.endswith(".")
        assert 0 < finding.confidence <= 1
        rule = explain(finding.code)
        assert rule.cause == finding.cause


def test_every_rule_fires_in_some_row() -> None:
    told = {cause for each in ROWS for cause in each.causes}
    assert {rule.cause for rule in RULES} - told == set()
    assert told - {rule.cause for rule in RULES} == set()


def test_rows_have_names_of_their_own() -> None:
    names = [each.name for each in ROWS]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize(
    ("name", "step", "over", "severity"),
    [
        ("one refused update", 40, 41, "warning"),
        ("stopped", 120, 122, "error"),
        ("starved", 32, None, "warning"),
        ("one process drifts", 128, None, "error"),
        ("a drift that was mended", 64, 128, "error"),
        ("a straggler", 0, None, "warning"),
        ("copies", 127, None, "warning"),
        ("halved without end", 108, None, "error"),
        ("another table", 0, None, "error"),
        ("another table for a while", 2, 4, "error"),
        ("other images from step 80 on", 80, None, "warning"),
        ("a sentinel that stands still late", 90, None, "error"),
        ("too high", 16, None, "error"),
        ("a jump", 60, None, "warning"),
        ("over too early", 60, None, "warning"),
        ("diverged", 62, None, "error"),
        ("a batch that kicks", 60, None, "warning"),
    ],
)
def test_since_when_and_whether_it_is_over(name: str, step: int, over: int | None, severity: str) -> None:
    [finding] = examine(case_of(row_of(name)))
    assert (finding.step, finding.over, finding.severity) == (step, over, severity)


def test_what_is_over_comes_last_and_errors_come_first() -> None:
    series = row_of("another table for a while").series | row_of("starved").series | row_of("the sign is turned").series
    assert causes_of(series) == ["loss.sign", "system.starved-loader", "forward.other-schedule"]


# One disease, one finding


@pytest.mark.parametrize(
    ("cause", "consequence"),
    [
        ("a batch that is not finite", "a foreign loop"),
        ("the sign is turned", "a gradient of something else, and more"),
        ("[0, 255]", "too loud"),
        ("another model", "an average that stands still"),
        ("tanh at the end", "too high"),
        ("a part of the network is ignored", "a part without gradient"),
        ("too high", "diverged"),  # a star: yields to whatever is found
        ("the same batch", "eight images"),
        ("zeros everywhere", "blind to the timestep"),
    ],
)
def test_what_follows_from_another_finding_is_not_told(cause: str, consequence: str) -> None:
    more = {
        "a gradient of something else, and more": checks(replay__cosine=[-1.0, 0.02, 0.02]),
        "a part of the network is ignored": LABELS | checks(network__label_response=0),
    }
    found = [more[name] if name in more else row_of(name).series for name in (consequence, cause)]
    events = [event for name in (consequence, cause) if name not in more for event in row_of(name).events]
    alone = causes_of(found[0], *events)
    assert alone, "the control: by itself the consequence is told"
    told = causes_of(found[0] | found[1], *events)
    assert len(told) == 1
    assert told == causes_of(found[1])


def rule(cause: str, step: int | None, *explained_by: str, severity: Severity = "error") -> Rule:
    """One that says the same of every history; nothing where `step` is None."""

    def detect(_: RunHistory) -> Detection | None:
        return None if step is None else Detection(step, "It is so.", severity=severity)

    return Rule(cause, cause, "", "", "", "Fix it.", detect, explained_by=" ".join(explained_by))


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ([rule("a.x", 0), rule("b.y", 0)], "a.x b.y"),
        ([rule("a.x", 0), rule("b.y", 0, "a.")], "a.x"),
        ([rule("a.x", 0), rule("b.y", 0, "a.z")], "a.x b.y"),
        ([rule("a.x", None), rule("b.y", 0, "a.")], "b.y"),
        ([rule("a.x", 9), rule("b.y", 40, "a.")], "a.x"),
        ([rule("a.x", 40 + LATER), rule("b.y", 40, "a.")], "a.x"),
        ([rule("a.x", 41 + LATER), rule("b.y", 40, "a.")], "b.y a.x"),  # what came later explains nothing
        ([rule("a.x", 0, severity="info"), rule("b.y", 0, "a.")], "b.y a.x"),
        ([rule("a.x", 0), rule("b.y", 0, "*")], "a.x"),
        ([rule("a.x", 0, "*"), rule("b.y", 0, "*")], "a.x b.y"),  # nothing that yields to all explains another such
        ([rule("a.x", 0, "b."), rule("b.y", 0, "a.")], "a.x"),
        ([rule("a.x", 0, "*"), rule("b.y", 0, "a.")], "a.x"),
        ([rule("a.x", 0, "a.")], "a.x"),  # itself is no reason
        ([rule("a.x", 0, "b."), rule("b.y", 0, "c."), rule("c.z", 0)], "c.z"),  # a chain has one end
    ],
)
def test_yielding(rules: list[Rule], told: str) -> None:
    found = examine(RunHistory(InMemoryReadings({})), tuple(rules))
    assert [finding.cause for finding in found] == told.split()


@pytest.mark.parametrize("names", [("diverged", "a foreign loop"), ("too much decay", "too high")])
def test_two_findings_are_not_none(names: tuple[str, str]) -> None:
    rows = [row_of(name) for name in names]
    assert causes_of(rows[0].series | rows[1].series, *rows[0].events, *rows[1].events)


def test_what_a_look_does_not_say_comes_from_the_rule() -> None:
    plain = rule("a.x", 3, severity="warning")
    found = plain.find(RunHistory(InMemoryReadings({})))
    assert found is not None
    assert (found.severity, found.fix.text, found.subsystem, found.over) == ("warning", "Fix it.", "a", None)
    fixed = replace(plain, default_fix=Fix("", {"optimizer.lr": 1e-4}, "unsafe")).find(RunHistory(InMemoryReadings({})))
    assert fixed is not None
    assert fixed.fix == Fix("Fix it.", {"optimizer.lr": 1e-4}, "unsafe")
    told = replace(plain, detect=lambda _: Detection(3, "It is so.", fix=Fix("Do that.")))
    assert told.find(RunHistory(InMemoryReadings({}))).fix.text == "Do that."  # type: ignore[union-attr]
    assert replace(plain, detect=lambda _: None).find(RunHistory(InMemoryReadings({}))) is None


# What a rule is given


def test_remembered_answers_as_a_record_does() -> None:
    remembered = InMemoryReadings({"b": ([1, 2], [3, 4]), "a": ([], [])}, [(5, "data", {"x": 1}), (6, "stopped", {})])
    assert remembered.signals() == ["a", "b"]
    steps, numbers = remembered.raw("b")
    assert (steps.tolist(), numbers.tolist()) == ([1, 2], [3, 4])
    assert (steps.dtype, numbers.dtype) == (np.int64, np.float32)
    assert [len(each) for each in remembered.raw("unknown")] == [0, 0]
    assert [note.name for note in remembered.events()] == ["data", "stopped"]
    assert [(note.step, note.facts) for note in remembered.events("data")] == [(5, {"x": 1})]


@pytest.mark.parametrize(
    ("hits", "least", "episode"),
    [
        ("", 1, None),
        ("....", 1, None),
        (".##.", 1, (1, 2, 2, 3)),
        (".##.", 3, None),
        ("..##", 2, (2, 3, 2, None)),
        ("##..#", 1, (4, 4, 1, None)),
        ("##..#", 2, (0, 1, 2, 2)),
        ("####", 4, (0, 3, 4, None)),
    ],
)
def test_spells(hits: str, least: int, episode: tuple[int, int, int, int | None] | None) -> None:
    found = episode_of(np.arange(len(hits)), np.array([each == "#" for each in hits], dtype=bool), least)
    assert (None if found is None else (found.first, found.last, found.looks, found.over)) == episode


def test_answers_of_probes() -> None:
    some, none = Check("some/thing", "Something."), Check("no/thing", "Nothing.")
    run = RunHistory(InMemoryReadings(checks(some__thing=([4, 8, 12], [1, 2, 3]))))
    assert (run.latest(some), run.latest_step(some)) == (3.0, 12)
    assert (run.latest(none, 7.0), run.latest_step(none)) == (7.0, 0)
    assert np.isnan(run.latest(none))
    at = run.evidence(some, "1", step=8)
    assert (at.signal, at.value, at.steps, at.usual) == ("check/some/thing", 2.0, (8, 8), "1")
    assert run.evidence(some, step=99).value == 3.0


def test_a_rule_that_breaks_is_told_and_the_others_are_asked() -> None:
    def break_down(_: RunHistory) -> None:
        raise ZeroDivisionError("oh")

    broken = replace(RULES[0], detect=break_down)
    found = examine(case_of(row_of("a part without gradient")), (broken, *RULES[1:]))
    assert [finding.cause for finding in found] == ["model.no-gradient", "data.rule-broken"]
    assert "ZeroDivisionError: oh" in found[1].summary


# Pages


def test_codes_and_causes_are_unique_and_pages_are_whole() -> None:
    assert len({rule.code for rule in RULES}) == len({rule.cause for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert re.fullmatch(r"[A-Z]{3}\d{3}", rule.code)
        for text in (rule.what, rule.why, rule.fix):
            assert text.endswith("."), rule.code
        for text in (rule.similar, rule.limits):  # nothing, where nothing looks like it
            assert text == "" or text.endswith("."), rule.code
    assert explain("los001").cause == "loss.nonfinite"
    with pytest.raises(UsageError, match=r"no finding 'LOS01'.*LOS001"):
        explain("LOS01")


def test_words_have_one_space_between_them() -> None:
    for rule in RULES:
        for text in (rule.title, rule.what, rule.why, rule.similar, rule.limits, rule.fix):
            assert not re.search(r"\s{2}|\n", text), (rule.code, text)


SUBSYSTEMS = (
    "data", "scale", "conditioning", "schedule", "timesteps", "forward", "target", "loss", "model", "optimizer", "lr",
    "ema", "mode", "precision", "clipping", "accumulation", "distributed", "checkpoint", "sampler", "evaluation",
    "generalisation", "system",
)  # fmt: skip


def test_causes_begin_with_a_subsystem_and_yield_to_what_exists() -> None:
    causes = [rule.cause for rule in RULES]
    for rule in RULES:
        assert rule.cause.partition(".")[0] in SUBSYSTEMS
        for start in rule.explained_by.split():
            assert start == "*" or any(cause.startswith(start) for cause in causes), (rule.code, start)


def named_in(text: str) -> set[str]:
    """Codes and causes."""
    return {
        *re.findall(r"\b[A-Z]{3}\d{3}\b", text),
        *re.findall(rf"\b(?:{'|'.join(SUBSYSTEMS)})\.[a-z]+(?:-[a-z]+)*\b(?!\()", text),  # not model.eval()
    }


def test_texts_name_only_what_exists() -> None:
    known = {name for rule in RULES for name in (rule.code, rule.cause)} | set(types_of_fields())
    wrong = {}
    for rule in RULES:
        names = named_in(" ".join((rule.what, rule.why, rule.similar, rule.limits, rule.fix)))
        if strange := {name for name in names if name not in known}:
            wrong[rule.code] = strange
    assert wrong == {}


def test_fixes_are_settings() -> None:
    for given in ROWS:
        if not given.wrong:
            for finding in examine(case_of(given)):
                assert finding.fix.set.keys() <= types_of_fields().keys()
