"""What is said of a checked script, and with which exit code it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from safelight.diagnosis import Diagnosis, Finding
from safelight.diagnosis.coverage import Coverage
from safelight.diagnosis.finding import Fix, Severity
from safelight.diagnosis.linting.checklist import ChecklistLine, checklist
from safelight.diagnosis.rules import RULES
from safelight.watching.check_report import REMARKS
from safelight.watching.scripts.notes import Ending, Notes
from safelight.watching.scripts.report import NO_PROCESS, NO_TARGET, ScriptReport, Unknown, report_on
from safelight.watching.watched_run import WatchedRun


def diagnosis(*severities: Severity, over: int | None = None) -> Diagnosis:
    fix = Fix("Cure it.")
    found = [Finding("AAA001", "model.sick", each, 0, 1.0, "It is sick.", (), fix, over=over) for each in severities]
    return Diagnosis(found, Coverage(3, 2, {"C": ("x",)}, {"C": ("x0",)}), watched=True)


def report(
    found: Diagnosis | None, ending: Ending = "stopped", code: int = 0, recognised: bool = True, **more: Any
) -> ScriptReport:
    return ScriptReport("train.py", Notes(20, ending, ("Linear.",)), code, found, is_recognised=recognised, **more)


@pytest.mark.parametrize(
    ("found", "plain", "strict"),
    [
        (report(diagnosis()), 0, 0),
        (report(diagnosis("info")), 0, 0),
        (report(diagnosis("warning")), 0, 5),
        (report(diagnosis("warning", "error")), 5, 5),
        (report(diagnosis("error", over=3)), 0, 0),
        (report(diagnosis("error"), recognised=False), 5, 5),
        (report(diagnosis(), recognised=False), 3, 3),
        (report(diagnosis(), "itself"), 0, 0),
        (report(None, "itself"), 3, 3),
        (report(None, "itself", code=1), 1, 1),
        (report(diagnosis("error"), "itself", code=137), 137, 137),
        (report(diagnosis("error"), "stopped", code=1), 5, 5),  # what a script does after the stop is not judged
        (report(diagnosis(), "swallowed"), 0, 0),
    ],
)
def test_exit_codes(found: ScriptReport, plain: int, strict: int) -> None:
    assert (found.exit_code(), found.exit_code(strict=True)) == (plain, strict)


def test_what_the_capture_alone_knows_is_known() -> None:
    """As where a sample has two numbers: rules do not look at it, and the report has named process and target."""
    found = ScriptReport("train.py", Notes(20, "stopped", ("Flow matching.",), (), True), 0, diagnosis())
    assert found.exit_code() == 0
    assert "It is not known" not in found.verdict
    assert "rules on them could not look" in found.verdict


def test_every_rule_stands_in_the_report() -> None:
    rules = (
        ChecklistLine("AAA001", "model.sick", "A sick model", "found"),
        *(ChecklistLine(f"PAS{i:03}", "a", "b", "passed") for i in range(40)),
        ChecklistLine("NOT001", "a", "b", "not looked at", "no sampler is known"),
        ChecklistLine("EXP001", "a", "b", "explained", "a consequence of what was found"),
    )
    words = report(diagnosis("error"), rules=rules).words()
    assert all(rule.code in words for rule in rules)
    assert "no sampler is known: NOT001" in words
    assert words.startswith("train.py: stopped after 20 updates.\n\nLinear.\n")
    assert words.endswith("AAA001  It is sick.\n  do  Cure it.")
    assert max(map(len, words.splitlines())) <= 120
    assert "PAS001" not in report(diagnosis("error"), rules=rules).words(quiet=True)


def test_remarks_stand_under_their_own_heading_and_fail_nothing() -> None:
    rules = (ChecklistLine("AAA001", "model.sick", "A sick model", "found"),)
    both, none = report(diagnosis("info", "warning"), rules=rules), report(diagnosis("warning"), rules=rules)
    words = both.words()
    assert words.endswith(f"\n\n{REMARKS}\n\nAAA001  It is sick.\n  do  Cure it.")
    assert words.count("AAA001  It is sick.") == 2
    assert words.index("1 warning: ") < words.index(REMARKS)
    assert "remark         AAA001" in report(diagnosis("info"), rules=rules).words()
    assert REMARKS not in none.words()
    assert REMARKS in report(diagnosis("info")).words(quiet=True)


def test_what_an_unedited_script_cannot_pass_is_not_advised() -> None:
    assert "Pass x0" in diagnosis().verdict
    assert "Pass x0" not in report(diagnosis()).words()
    assert report(diagnosis()).to_json()["coverage"]["missing"] == []


def test_the_ways_to_end_are_told_apart() -> None:
    assert "ended by itself after 20 updates, with exit code 1" in report(diagnosis(), "itself", 1).words()
    assert "although it caught" in report(diagnosis(), "swallowed").words()
    assert "a minute after" in report(diagnosis(), "late").words()
    assert "not known which process" in report(diagnosis(), recognised=False).words()
    assert report(None, "itself", 1).words().endswith("The script left with exit code 1.")


def test_json_has_the_same_keys_with_and_without_training() -> None:
    trained, untrained = report(diagnosis("error")).to_json(), report(None).to_json()
    assert json.loads(json.dumps(trained)) == trained
    assert untrained.keys() <= trained.keys()
    assert (trained["exit_code"], untrained["exit_code"], trained["updates"]) == (5, 3, 20)


def test_a_record_is_judged_also_without_notes(tmp_path: Path) -> None:
    run = WatchedRun(tmp_path / "run", 0, lambda text: None)
    for step in range(3):
        run.record.add(step, {"loss/mean": 1.0 - step / 10, "check/batch/lowest": -1.0})
    run.close(step=3)
    killed = report_on("train.py", tmp_path / "run", None, 137)
    assert killed.exit_code() == 137
    assert killed.notes.updates == 3
    assert killed.rows[1].value == pytest.approx(0.8)
    assert not killed.is_recognised
    assert len(killed.rules) == killed.diagnosis.coverage.rules if killed.diagnosis else False


def test_no_record_is_nothing(tmp_path: Path) -> None:
    found = report_on("train.py", tmp_path / "none", None, 0)
    assert found.diagnosis is None
    assert found.exit_code() == 3


@pytest.mark.parametrize(("unknown", "for001"), [(NO_PROCESS, "not looked at"), (NO_TARGET, "passed")])
def test_rules_on_what_was_not_recognised_did_not_look(unknown: Unknown, for001: str) -> None:
    all_looked = Coverage(len(RULES), len(RULES), {}, {})
    left = unknown.without(all_looked)
    states = {line.code: line for line in checklist(Diagnosis([], left), is_edited=False)}
    assert (states["TAR001"].state, states["TAR001"].reason) == ("not looked at", unknown.reason)
    assert (states["FOR001"].state, states["TAR010"].state) == (for001, "passed")
    assert left.looked == sum(line.state == "passed" for line in states.values()) < len(RULES)
