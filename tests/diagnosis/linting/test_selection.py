"""Rules by code, family or cause; from flags, pyproject.toml and comments; unknown ones are errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from safelight.diagnosis.coverage import coverage
from safelight.diagnosis.doctor import Consequence, Diagnosis
from safelight.diagnosis.finding import Finding, Fix
from safelight.diagnosis.linting.selection import Selection, apply, comments_in, load_selection, names_in
from safelight.diagnosis.rules import RULES
from safelight.diagnosis.run_history import InMemoryReadings, RunHistory
from safelight.errors import UsageError
from safelight.vocabulary import LOSS


def finding(code: str, severity: str = "error") -> Finding:
    rule = next(rule for rule in RULES if rule.code == code)
    return Finding(code, rule.cause, severity, 3, 1.0, rule.title, (), Fix("Do it."))  # type: ignore[arg-type]


def diagnosis(*codes: str, explained: tuple[Consequence, ...] = ()) -> Diagnosis:
    run = RunHistory(InMemoryReadings({LOSS.name: (np.arange(600), np.ones(600))}))
    return Diagnosis([finding(code) for code in codes], coverage(run), explained=explained)


def left(names: dict[str, list[str]]) -> list[str]:
    selection = Selection(tuple(names.get("select", [])), tuple((name, "--ignore") for name in names.get("ignore", [])))
    return [each.code for each in apply(diagnosis("LOS001", "LOS007", "EMA001", "LRA005"), selection).findings]


@pytest.mark.parametrize(
    ("names", "codes"),
    [
        ({}, ["LOS001", "LOS007", "EMA001", "LRA005"]),
        ({"select": ["LOS"]}, ["LOS001", "LOS007"]),
        ({"select": ["los001"]}, ["LOS001"]),
        ({"select": ["loss."]}, ["LOS001", "LOS007"]),
        ({"select": ["ema"]}, ["EMA001"]),
        ({"select": ["lr.jump"]}, ["LRA005"]),
        ({"ignore": ["LOS", "lr"]}, ["EMA001"]),
        ({"select": ["LOS"], "ignore": ["LOS007"]}, ["LOS001"]),
        ({"select": ["ALL"], "ignore": ["all"]}, []),
    ],
)
def test_names(names: dict[str, list[str]], codes: list[str]) -> None:
    assert left(names) == codes


@pytest.mark.parametrize(
    ("name", "near"),
    [("EMA01", "EMA001"), ("ema.to-long", "ema.too-long"), ("TARR", "TAR"), ("???", "no rule.")],
)
def test_unknown_names_are_errors(name: str, near: str) -> None:
    with pytest.raises(UsageError, match="--select names") as caught:
        names_in([name], "--select")
    assert near in str(caught.value)


def test_rules_that_do_not_count_did_not_look() -> None:
    before = diagnosis("LOS001")
    after = apply(before, Selection(ignore=(("LOS001", "--ignore"), ("CUR", "--ignore"))))
    assert before.coverage.looked - after.coverage.looked == 6
    assert after.coverage.unable["CUR001"] == "ignored by --ignore"
    assert after.verdict.startswith(f"Nothing was found by the {after.coverage.looked} of ")


def test_a_consequence_is_reported_where_its_cause_does_not_count() -> None:
    explained = (
        Consequence(finding("LOS001"), frozenset({"LRA005"})),
        Consequence(finding("LOS007"), frozenset({"LRA005", "LOS001"})),
    )
    found = apply(diagnosis("LRA005", explained=explained), Selection(ignore=(("LRA005", "--ignore"),)))
    assert [each.code for each in found.findings] == ["LOS001"]
    assert [each.finding.code for each in found.explained] == ["LOS007"]
    only = apply(diagnosis("LRA005", explained=explained), Selection(("LOS007",)))
    assert [each.code for each in only.findings] == ["LOS007"]


def test_the_table_of_the_nearest_project_counts(tmp_path: Path) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.safelight]\nselect = ["LOS"]\nignore = "EMA001, LRA"\nbaseline = "b.json"'
    )
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.other]\n")  # has no such table
    found = load_selection(ignore=["TAR"], start=inside)
    assert found.select == ("LOS",)
    assert [name for name, _ in found.ignore] == ["TAR", "EMA001", "LRA"]
    assert found.baseline == tmp_path / "b.json"
    assert load_selection(select=["EMA"], start=inside).select == ("EMA",)
    script = inside / "train.py"
    script.write_text("x = 1  # safelight: ignore=CUR001\n")
    where = dict(load_selection(script=script).ignore)
    assert where["CUR001"] == "a comment in train.py"
    assert "[tool.safelight]" in where["EMA001"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[tool.safelight]\nignroe = ["EMA001"]', "Did you mean 'ignore'"),
        ("[tool.safelight]\nignore = 3", "should be a text or a list"),
        ('[tool.safelight]\nignore = ["EMA01"]', "Did you mean 'EMA001'"),
        ("[tool.safelight\n", "cannot be read"),
    ],
)
def test_a_wrong_table_ends_in_words(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError, match=words):
        load_selection(start=tmp_path)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("# safelight: ignore=EMA001", ("EMA001",)),
        ("x = 1  #safelight:ignore = EMA001, LRA005 -- known", ("EMA001, LRA005",)),
        ('x = "# safelight: ignore=EMA001"', ()),
        ("# safelight: ignore=EMA001\ndef broken(:\n", ("EMA001",)),
        ("'''\n# safelight: ignore=EMA001\n'''", ()),
    ],
)
def test_comments(tmp_path: Path, source: str, names: tuple[str, ...]) -> None:
    script = tmp_path / "train.py"
    script.write_text(source)
    assert comments_in(script) == names
