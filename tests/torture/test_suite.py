"""A little of the torture suite: what it kills and feeds survives, what is broken on purpose is found out."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from torture.pieces import cut, run_pieces
from torture.report import Found, add, read_pieces, render
from torture.scenario import Outcome, Scenario, Trial, is_as_wanted, merge, shortfall
from torture.scenarios import all_scenarios

ROOT = Path(__file__).parents[2]
PROPERTIES = {"kills": 1, "fuzz: images": 1000, "fuzz: tensors": 1000, "fuzz: manifests": 300, "fuzz: checkpoints": 100,
              "fuzz: configs": 200, "fuzz: records": 60, "ranks killed": 2, "plain loops": 10}  # fmt: skip
CONTROLS = (
    "seed broken",
    "fuzz: unsafe YAML",
    "fuzz: a reader that crashes",
    "fuzz: a traceback",
    "fsync removed",
    "plain loops, saved later",
)


@pytest.mark.timeout(1800)  # half a minute alone, and many times that beside others
def test_a_little_of_everything(tmp_path: Path) -> None:
    """In a process of its own: this one may have computed with torch, and then it must not fork."""
    command = [sys.executable, "-m", "torture", "--quick", "--jobs", "2", "-o", str(tmp_path)]
    done = subprocess.run([*command, "--only", *PROPERTIES, *CONTROLS], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {
        name: merge(list(pieces.values()))
        for name, pieces in read_pieces(tmp_path, "python -m torture --quick --seed 0").items()
    }
    assert found.keys() == {*PROPERTIES, *CONTROLS}
    for name, least in PROPERTIES.items():
        assert found[name].lost == [], name
        assert found[name].count >= least, name
    assert all(found[name].lost for name in CONTROLS)
    assert found["kills"].finals
    table = (tmp_path / "torture.md").read_text()
    assert table.count("red, as it must") == len(CONTROLS)


def test_the_page_quotes_the_table_and_the_table_is_as_wanted() -> None:
    table, page = (ROOT / "torture/results/torture.md").read_text(), (ROOT / "docs/torture.md").read_text()
    (faults,) = re.findall(r"^\*\*([\d,]+ faults, \d+ lost)\*\*", table, re.M)
    (kills,) = re.findall(r"^\| kills \| ([\d,]+) kills", table, re.M)
    assert f"**{faults}**" in page
    assert f"SIGKILL at {kills} random moments" in page
    assert "**red**" not in table
    assert "short:" not in table
    assert "**green:" not in table
    assert [name for name in all_scenarios() if f"\n| {name} |" not in table] == []


# The machinery


def count_cases(trial: Trial) -> Outcome:
    outcome = Outcome(count=len(trial.cases), finals="f" * 64)
    outcome.lost = [(case, "work lost") for case in trial.cases if case % 10 == 7]
    outcome.tally["even"] = sum(case % 2 == 0 for case in trial.cases)
    return outcome


def break_down(trial: Trial) -> Outcome:
    raise RuntimeError("a bug of the suite")


def scenario(**changes: object) -> Scenario:
    known = {"name": "a", "deed": "It counts.", "unit": "cases", "wanted": 10, "cases": 7, "quick": 2, "piece": 3,
             "act": count_cases}  # fmt: skip
    return Scenario(**(known | changes))  # type: ignore[arg-type]


def test_pieces_cover_every_case_once() -> None:
    assert [list(piece.cases) for piece in cut(scenario(), 0, quick=False)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [list(piece.cases) for piece in cut(scenario(), 0, quick=True)] == [[0, 1]]


def test_a_case_is_a_function_of_seed_and_number(tmp_path: Path) -> None:
    one, other = Trial(3, range(5), tmp_path), Trial(3, range(4, 9), tmp_path)
    assert one.draw(4).random() == other.draw(4).random()
    assert one.draw(4).random() != one.draw(3).random()
    assert one.draw(4).random() != Trial(4, range(5), tmp_path).draw(4).random()


def test_pieces_are_carried_out_apart_and_one_that_breaks_is_a_loss() -> None:
    pieces = [*cut(scenario(), 0, quick=False), *cut(scenario(name="b", act=break_down), 0, quick=True)]
    found = [(piece.scenario.name, outcome) for piece, outcome in run_pieces(pieces, jobs=2)]
    assert sum(outcome.count for name, outcome in found if name == "a") == 7
    (broken,) = [outcome for name, outcome in found if name == "b"]
    assert "the scenario itself broke" in broken.lost[0][1]
    assert "a bug of the suite" in broken.lost[0][1]


@pytest.mark.parametrize(
    ("symptom", "lost", "count", "wanted"),
    [
        ("", [], 5, True),
        ("", [(1, "work lost")], 5, False),
        ("", [], 0, False),  # nothing was tried
        ("work lost", [(1, "work lost")], 5, True),
        ("work lost", [], 5, False),  # a control that is not found out
        ("work lost", [(1, "the scenario itself broke")], 5, False),  # not because it could not start
    ],
)
def test_verdicts(symptom: str, lost: list[tuple[int, str]], count: int, wanted: bool) -> None:
    assert is_as_wanted(scenario(symptom=symptom), Outcome(count, lost)) == wanted


def test_what_is_short_is_told_and_other_finals_are_a_loss() -> None:
    assert shortfall(scenario(least={"even": 9}), Outcome(10)) == ["0 even, 9 wanted"]
    assert merge([Outcome(1, finals="a"), Outcome(2, finals="a")]).lost == []
    assert merge([Outcome(1, finals="a"), Outcome(2, finals="b")], alike=False).lost == []
    assert "2 kinds of final bytes" in merge([Outcome(1, finals="a"), Outcome(2, finals="b")]).lost[0][1]


def test_the_table_grows_piece_by_piece(tmp_path: Path) -> None:
    known = {"a": scenario(wanted=7), "c": scenario(name="c", symptom="work lost")}
    for cases in ("0:3", "3:7", "0:3"):  # one of them twice: it is not counted twice
        add(tmp_path, "a", cases, Outcome(3 if cases == "0:3" else 4), known, "python -m torture")
    add(tmp_path, "c", "0:1", Outcome(1, [(0, "work lost | all")]), known, "python -m torture")
    text = (tmp_path / "torture.md").read_text()
    assert "| a | 7 cases | 7 | 0 | 0 | – | green |" in text
    assert "| c | 1 cases | 1 | work lost / all | red, as it must |" in text
    found: Found = read_pieces(tmp_path, "python -m torture")
    assert read_pieces(tmp_path, "python -m torture --seed 1") == {}
    assert json.loads(json.dumps(found["c"]["0:1"].to_json())) == found["c"]["0:1"].to_json() | {
        "lost": [[0, "work lost | all"]]
    }
    assert "**red**" in render({"a": {"0:1": Outcome(1, [(0, "x")])}}, known, "python -m torture")
