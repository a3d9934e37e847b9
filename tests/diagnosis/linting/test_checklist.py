"""Every rule stands in the list once, with its state and reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from safelight.diagnosis.coverage import coverage
from safelight.diagnosis.doctor import Consequence, Diagnosis
from safelight.diagnosis.finding import Finding, Fix
from safelight.diagnosis.linting.checklist import ChecklistLine, checklist, count, grouped, to_json
from safelight.diagnosis.linting.selection import Selection, apply
from safelight.diagnosis.rules import RULES
from safelight.diagnosis.run_history import InMemoryReadings, RunHistory
from safelight.diagnosis.spacing import Spacing
from safelight.vocabulary import LOSS


def finding(code: str, cause: str = "", over: int | None = None) -> Finding:
    rule = next(rule for rule in RULES if rule.code == code)
    return Finding(code, cause or rule.cause, "error", 3, 1.0, "It is so.", (), Fix(""), over=over)


def test_states_and_reasons() -> None:
    run = RunHistory(InMemoryReadings({LOSS.name: (np.arange(99), np.ones(99))}), spacing=Spacing(10, True))
    found = Diagnosis(
        [finding("LOS001", over=7), finding("LOS003", "loss.rule-broken")],
        coverage(run),
        known=(finding("LOS007"),),
        explained=(Consequence(finding("CUR004"), frozenset({"LOS001"})),),
        watched=True,
    )
    found = apply(found, Selection(ignore=(("CUR001", "--ignore"),)))
    lines = {line.code: line for line in checklist(found)}
    assert list(lines) == [rule.code for rule in RULES]
    expected = {
        "LOS001": ("found", "over since step 7"),
        "LOS003": ("not looked at", "It is so."),
        "LOS007": ("known", "in the baseline"),
        "CUR004": ("explained", "by LOS001"),
        "CUR001": ("not looked at", "ignored by --ignore"),
        "CUR002": ("not looked at", "needs the loss of every step; the log has one in 10 steps"),
        "CUR003": ("not looked at", "needs 128 losses; the log has 99"),
        "SCH001": ("not looked at", "pass process"),
        "LRA003": ("not looked at", "pass optimizer"),
    }
    assert {code: (lines[code].state, lines[code].reason) for code in expected} == expected
    assert all(line.reason for line in lines.values() if line.state == "not looked at")
    assert "1 found" in count(list(lines.values()))
    assert len(to_json(list(lines.values()))) == len(RULES)


def test_a_rule_that_looked_and_found_nothing_passed() -> None:
    run = RunHistory(InMemoryReadings({LOSS.name: (np.arange(99), np.ones(99))}))
    lines = checklist(Diagnosis([], coverage(run)))
    passed = [line.code for line in lines if line.state == "passed"]
    assert len(passed) == coverage(run).looked
    unwatched = checklist(replace(Diagnosis([], coverage(run)), watched=False))
    assert next(line.reason for line in unwatched if line.code == "SCH001") == "lacks check/schedule/rising"


def test_a_script_that_is_not_edited_is_not_asked_to_pass_anything() -> None:
    run = RunHistory(InMemoryReadings({LOSS.name: (np.arange(99), np.ones(99))}))
    lines = {line.code: line.reason for line in checklist(Diagnosis([], coverage(run), watched=True), is_edited=False)}
    expected = {
        "SAM001": "no sampler is known",
        "TAR004": "what the network is shown was not recognised",
        "EMA001": "no EMA was seen",
        "DIV007": "no samples were drawn",
        "CHK003": "only runs of `safelight train` have it",
        "CON002": "no labels or other conditions were seen",
        "OPT010": "no adapter was seen",
    }
    assert {code: lines[code] for code in expected} == expected
    assert not any("pass " in reason for reason in lines.values())
    assert grouped(
        [
            ChecklistLine("A", "", "", "passed", "x"),
            ChecklistLine("B", "", "", "passed", "y"),
            ChecklistLine("C", "", "", "passed", "y"),
        ]
    ) == {
        "y": ["B", "C"],
        "x": ["A"],
    }


def test_reasons_for_scripts_are_words_and_true() -> None:
    seen = {f"check/average/{name}": (np.arange(3), np.zeros(3)) for name in ("coarse", "left", "decay", "moved")}
    some = {"check/network/finite": (np.arange(1), np.ones(1)), "check/forward/wrong": (np.arange(1), np.zeros(1))}
    run = RunHistory(InMemoryReadings({LOSS.name: (np.arange(99), np.ones(99)), **seen, **some}))
    lines = {line.code: line.reason for line in checklist(Diagnosis([], coverage(run)), is_edited=False)}
    assert lines["EMA004"] == "gradients are not accumulated: it cannot move between micro-batches"
    assert lines["SCH001"] == "no table of alphas_cumprod was seen"
    assert [reason for reason in lines.values() if "lacks" in reason] == []
