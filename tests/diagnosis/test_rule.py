"""A rule turns a detection into a finding; the detectors that are rows of a table."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from histories import Series, checks

from safelight.checks import ProbeReading
from safelight.config.resolve import resolve
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.rule import (
    Detection,
    Detector,
    error_rule,
    first_of,
    on_count,
    on_episode,
    on_latest,
    warning_rule,
)
from safelight.diagnosis.run_history import InMemoryReadings, RunHistory

ONE, OTHER = ProbeReading("a/one", "One."), ProbeReading("a/other", "Other.")
PAGE: dict[str, Any] = {"what": "", "why": "", "fix": "Fix it.", "detect": lambda _: Detection(3, "It is so.")}
NOTHING = RunHistory(InMemoryReadings({}), resolve(preset="digits"))


def detected(detect: Detector, series: Series) -> tuple[int, str, int | None] | None:
    found = detect(RunHistory(InMemoryReadings(series)))
    return None if found is None else (found.step, found.summary, found.ended_at)


def test_what_a_detection_does_not_say_comes_from_the_rule() -> None:
    plain = warning_rule("AAA001", "a.x", "A title", **PAGE)
    found = plain.find(NOTHING)
    assert found is not None
    assert (found.severity, found.fix.text, found.subsystem, found.over) == ("warning", "Fix it.", "a", None)
    fixed = replace(plain, default_fix=Fix("", {"optimizer.lr": 1e-4}, "unsafe")).find(NOTHING)
    assert fixed is not None
    assert fixed.fix == Fix("Fix it.", {"optimizer.lr": 1e-4}, "unsafe")
    own = replace(plain, detect=lambda _: Detection(3, "It is so.", severity="info", fix=Fix("Do that."))).find(NOTHING)
    assert own is not None
    assert (own.severity, own.fix.text) == ("info", "Do that.")
    assert replace(plain, detect=lambda _: None).find(NOTHING) is None


def test_numbers_of_float32_are_rounded_wherever_a_finding_goes() -> None:
    rate = float(np.float32(0.01))
    evidence = Evidence("optimizer/lr", rate, (3, 3)), Evidence("check/name", "0.010000000474974513")
    fix = Fix("Lower it.", {"optimizer.lr": rate, "data.workers": 4, "ema.kind": "power", "data.flip": True})
    rule = warning_rule(
        "AAA001", "a.x", "A title", **PAGE | {"detect": lambda _: Detection(3, "High.", evidence, fix=fix)}
    )
    found = rule.find(NOTHING)
    assert found is not None
    written = json.loads(json.dumps(found.to_json()))
    assert written["fix"]["set"] == {"optimizer.lr": 0.01, "data.workers": 4, "ema.kind": "power", "data.flip": True}
    assert [each["value"] for each in written["evidence"]] == [0.01, "0.010000000474974513"]


def test_errors_and_warnings() -> None:
    rules = [make_rule("AAA001", "a.x", "A title", **PAGE) for make_rule in (error_rule, warning_rule)]
    assert [(rule.code, rule.cause, rule.title) for rule in rules] == [("AAA001", "a.x", "A title")] * 2
    assert [rule.severity for rule in rules] == ["error", "warning"]


def test_a_reading_that_was_not_recorded_is_no_evidence() -> None:
    there = Evidence("a", 1.0), Evidence("b", float("nan"), (3, 3)), Evidence("c", "words")
    lacking = Evidence("d", float("nan"))
    rule = error_rule("AAA001", "a.x", "", **PAGE | {"detect": lambda _: Detection(3, "", (*there, lacking))})
    found = rule.find(NOTHING)
    assert found is not None
    assert found.evidence == there


LARGE = on_latest({ONE: "below 1"}, lambda one, other: one > other, "{} over {}.", also=(OTHER,))
SPELL = on_episode(
    lambda run: run.episode(ONE, lambda numbers: numbers > 0, 2),
    "{0:.0f} now, {episode.looks} in a row.",
    evidence={ONE: "0"},
)
HITS = on_count(ONE, 2, "{} hits.")


@pytest.mark.parametrize(
    ("detect", "series", "expected"),
    [
        (LARGE, checks(a__one=([2, 9], [0, 5]), a__other=3), (9, "5.0 over 3.0.", None)),
        (LARGE, checks(a__one=([2, 9], [5, 3]), a__other=3), None),
        (LARGE, checks(a__one=5), None),  # one of them was not recorded
        (LARGE, checks(a__other=3), None),
        (SPELL, checks(a__one=[0, 1, 2, 0]), (1, "0 now, 2 in a row.", 3)),
        (SPELL, checks(a__one=[0, 1, 0, 1]), None),
        (SPELL, checks(a__one=[0, 0, 1, 4]), (2, "4 now, 2 in a row.", None)),
        (SPELL, {}, None),
        (HITS, checks(a__one=([4, 7], [1, 1])), (4, "2 hits.", None)),
        (HITS, checks(a__one=([4], [1])), None),
        (first_of(HITS, LARGE), checks(a__one=([4, 7], [1, 9]), a__other=0), (4, "2 hits.", None)),
        (first_of(HITS, LARGE), checks(a__one=([4], [9]), a__other=0), (4, "9.0 over 0.0.", None)),
        (first_of(HITS, LARGE), {}, None),
    ],
)
def test_detectors(detect: Detector, series: Series, expected: tuple[int, str, int | None] | None) -> None:
    assert detected(detect, series) == expected


def test_an_episode_that_cannot_end() -> None:
    lasting = on_episode(lambda run: run.episode(ONE, lambda numbers: numbers > 0), "So.", can_end=False)
    assert detected(lasting, checks(a__one=[0, 1, 0])) == (1, "So.", None)
