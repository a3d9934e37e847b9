"""SARIF 2.1.0 has what its schema requires, and what code scanners need."""

from __future__ import annotations

import json
from typing import Any

import pytest

from safelight.diagnosis.coverage import Coverage
from safelight.diagnosis.doctor import Diagnosis
from safelight.diagnosis.finding import Finding, Fix
from safelight.diagnosis.linting.sarif import to_sarif, uri_of
from safelight.diagnosis.rules import RULES

LEVELS = {"none", "note", "warning", "error"}


def finding(code: str, severity: str, over: int | None = None) -> Finding:
    rule = next(rule for rule in RULES if rule.code == code)
    return Finding(code, rule.cause, severity, 3, 1.0, "It is so.", (), Fix("Do it."), over=over)  # type: ignore[arg-type]


FOUND = Diagnosis(
    [
        finding("LOS001", "error"),
        finding("LRA005", "warning"),
        finding("EMA001", "info"),
        finding("LOS007", "error", 9),
    ],
    Coverage(9, 9, {}, {}),
    known=(finding("CUR001", "warning"),),
)


def check_required(log: dict[str, Any]) -> None:
    """The required properties of the schema of OASIS, for the objects that we write."""
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    for run in log["runs"]:
        driver = run["tool"]["driver"]
        assert driver["name"]
        identities = [rule["id"] for rule in driver["rules"]]
        assert len(identities) == len(set(identities))
        for rule in driver["rules"]:
            assert all(rule[key]["text"] for key in ("shortDescription", "fullDescription", "help"))
            assert rule["defaultConfiguration"]["level"] in LEVELS
        for invocation in run["invocations"]:
            assert isinstance(invocation["executionSuccessful"], bool)
        for result in run["results"]:
            assert result["message"]["text"]
            assert result["level"] in LEVELS
            assert identities[result["ruleIndex"]] == result["ruleId"]
            assert result.get("baselineState", "new") in {"new", "unchanged", "updated", "absent"}
            for location in result["locations"]:
                physical = location["physicalLocation"]
                assert " " not in physical["artifactLocation"]["uri"]
                assert physical["region"]["startLine"] >= 1
            assert all(isinstance(value, str) for value in result["partialFingerprints"].values())


def test_it_has_what_the_schema_requires() -> None:
    log = json.loads(json.dumps(to_sarif(FOUND, "scripts/my train.py", 12, compared=True), allow_nan=False))
    check_required(log)
    [run] = log["runs"]
    assert len(run["tool"]["driver"]["rules"]) == len(RULES)
    assert [result["level"] for result in run["results"]] == ["error", "warning", "note", "note", "warning"]
    assert [result["baselineState"] for result in run["results"]] == ["new"] * 4 + ["unchanged"]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "scripts/my%20train.py"}, "region": {"startLine": 12}}
    prints = [result["partialFingerprints"]["safelight/v1"] for result in run["results"]]
    assert len(set(prints)) == 5


def test_without_a_baseline_nothing_is_new() -> None:
    check_required(to_sarif(FOUND, "runs/x"))
    assert "baselineState" not in to_sarif(FOUND, "runs/x")["runs"][0]["results"][0]


@pytest.mark.parametrize(("path", "uri"), [("a b/ü.py", "a%20b/%C3%BC.py"), ("/tmp/x y", "file:///tmp/x%20y")])
def test_paths(path: str, uri: str) -> None:
    assert uri_of(path) == uri
