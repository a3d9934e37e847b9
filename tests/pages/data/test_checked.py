"""What was checked, by family: every rule stands somewhere, once."""

from __future__ import annotations

from pathlib import Path

from folders import FINDING, make_run

from safelight.diagnosis.rules import RULES
from safelight.pages.data.checked import checked
from safelight.pages.data.overview import overview
from safelight.record.history import open_history
from safelight.run import RunFolder


def test_every_rule_passed_or_was_found_or_could_not_look(tmp_path: Path) -> None:
    run = RunFolder(make_run(tmp_path / "a"))
    with open_history(run.record) as history:
        found = checked(history, [{"code": FINDING["code"], "over": None}], watched=False)
    kinds = [title for family in found["families"] for kind in ("passed", "found", "missing") for title in family[kind]]
    assert sorted(kinds) == sorted(rule.title for rule in RULES)
    assert [title for family in found["families"] for title in family["found"]] == [
        next(rule.title for rule in RULES if rule.code == FINDING["code"])
    ]
    assert 0 < found["looked"] < found["rules"] == len(RULES)


def test_one_that_ended_counts_as_looked(tmp_path: Path) -> None:
    run = RunFolder(make_run(tmp_path / "a"))
    with open_history(run.record) as history:
        found = checked(history, [{"code": FINDING["code"], "over": 9}], watched=False)
    assert not any(family["found"] for family in found["families"])


def test_a_watched_loop_is_told_what_to_pass(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", config=None, status={"kind": "watched"})
    assert str(overview(RunFolder(run))["checked"]["advice"]).startswith("Pass ")
    assert overview(RunFolder(make_run(tmp_path / "b")))["checked"]["advice"] is None
