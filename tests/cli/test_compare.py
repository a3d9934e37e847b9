"""`safelight compare`: runs side by side."""

from __future__ import annotations

import json

import pytest
from commands import ask
from recorded_runs import make_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    top = tmp_path_factory.mktemp("metrics")
    return str(make_run(top / "first")), str(make_run(top / "second", seed=7, offset=0.25, sick=False))


def test_compare(runs, capsys) -> None:
    code, out, _ = ask(capsys, "compare", *runs)
    assert code == 0
    rows = {line[:24].strip(): line for line in out.splitlines()}
    assert "train.seed" in rows
    assert "train.steps" not in rows
    assert "0.25 (step 200)" in rows["probe/ema, best"]
    assert rows["time"].split()[1:] == ["1:15", "1:22"]


def test_compare_as_json(runs, capsys) -> None:
    _, out, _ = ask(capsys, "compare", *runs, runs[0], "--json")
    found = json.loads(out, parse_constant=pytest.fail)
    assert found["settings"] == {"train.seed": [0, 7, 0]}
    assert [run["signals"]["probe/ema"]["best"] for run in found["runs"]] == [0.0, 0.25, 0.0]
    assert [run["signals"]["probe/ema"]["best_step"] for run in found["runs"]] == [200] * 3
    assert found["runs"][0]["signals"]["loss/mean"]["best"] is None
    assert [(run["status"], run["step"], run["steps"]) for run in found["runs"]] == [("finished", 300, 300)] * 3


def test_compare_chosen_signals_and_equal_settings(runs, capsys) -> None:
    _, out, _ = ask(capsys, "compare", runs[0], runs[0], "--signal", "own", "--signal=all/nan")
    assert "the same" in out
    assert "own, last" in out
    assert "×" in out
    assert "probe" not in out
