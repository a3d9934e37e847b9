"""Findings: how they are sorted, and what is written of them."""

from __future__ import annotations

import json

import pytest

from safelight.diagnosis.finding import Evidence, Finding, Fix, subsystem_of, urgency


def test_the_worst_first_then_the_earliest_and_what_is_over_last() -> None:
    found = [(8, "error", 0), (None, "info", 0), (None, "warning", 5), (None, "error", 9), (None, "warning", 1)]
    order = [("error", 9), ("warning", 1), ("warning", 5), ("info", 0), ("error", 0)]
    assert [each[1:] for each in sorted(found, key=lambda each: urgency(*each))] == order


@pytest.mark.parametrize(("cause", "subsystem"), [("ema.too-long", "ema"), ("ema", "ema"), ("a.b.c", "a")])
def test_a_cause_begins_with_its_subsystem(cause: str, subsystem: str) -> None:
    assert subsystem_of(cause) == subsystem


def test_a_finding_is_written_whole_also_where_evidence_is_not_finite() -> None:
    evidence = (Evidence("a", float("nan"), (3, 3)),)
    found = Finding("EMA001", "ema.too-long", "error", 3, 1.0, "So.", evidence, Fix("Do."))
    written = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert (written["subsystem"], written["step"], written["fix"]["text"]) == ("ema", 3, "Do.")
    assert written["evidence"] == [{"signal": "a", "value": "NaN", "steps": [3, 3], "usual": None}]
    assert written.keys() == {*Finding.__slots__, "subsystem"}
