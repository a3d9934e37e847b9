"""The table of a check: which rows a finding marks, and how it is shown and kept."""

from __future__ import annotations

import json
import math

from safelight.diagnosis import Diagnosis, Finding
from safelight.diagnosis.coverage import Coverage
from safelight.diagnosis.finding import Evidence, Fix
from safelight.watching.check_report import CheckReport, Row, with_findings


def finding(code: str, *signals: str) -> Finding:
    evidence = tuple(Evidence(signal, 2.0) for signal in signals)
    return Finding(code, "model.sick", "error", 0, 1.0, "It is sick.", evidence, Fix("Cure it."))


ROWS = [Row("output", "mean", 1.25, readings=("a",)), Row("output", "shape", "1 × 2"), Row("memory", "-", None)]


def test_a_finding_marks_the_rows_that_prove_it() -> None:
    marked = with_findings(ROWS, [finding("AAA001", "a"), finding("AAA002", "a")])
    assert (marked[0].state, marked[0].note) == ("finding", "AAA001, AAA002")
    assert [row.state for row in marked[1:]] == ["ok", "ok"]


def test_a_number_that_looks_healthy_does_not_stand_alone_beside_a_finding() -> None:
    row = Row("labels", "response", 0.3, "ok", "healthy: above 1e-6", ("a", "check/b"))
    [marked] = with_findings([row], [finding("AAA001", "a", "check/b")])
    assert (marked.state, marked.note) == ("finding", "AAA001 (b 2)")
    left = CheckReport((marked,), Diagnosis([finding("AAA001", "a")], Coverage(3, 2, {}, {})))
    assert left.narrowed(Diagnosis([], Coverage(3, 2, {}, {}))).rows[0].state == "not looked at"


def test_a_finding_without_a_row_gets_one() -> None:
    for each in (finding("AAA001", "b"), finding("AAA001")):
        added = with_findings(ROWS, [each])[-1]
        assert (added.part, added.name, added.state, added.note) == ("model", "model.sick", "finding", "AAA001")


def test_the_table_shows_numbers_verdict_and_advice() -> None:
    found = [finding("AAA001", "a")]
    report = CheckReport(with_findings(ROWS, found), Diagnosis(found, Coverage(3, 2, {}, {})))
    lines = str(report).splitlines()
    assert lines[0].split() == ["output", "mean", "1.25", "finding", "AAA001"]
    assert lines[1].split() == ["shape", "1", "×", "2", "ok"]
    assert "  do  Cure it." in lines
    assert not report.is_ok
    broken = CheckReport((Row("output", "mean", math.nan),), Diagnosis([], Coverage(3, 2, {}, {})))
    assert broken.is_ok
    assert json.loads(json.dumps(broken.to_json(), allow_nan=False))["rows"][0]["value"] is None
    assert "2 of 3 rules" in str(broken)
