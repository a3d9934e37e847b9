"""A run that was kept is judged again without training it again."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

import safelight
from gauntlet.archive import judge_again, keep
from gauntlet.plan import faulty
from gauntlet.trial import run_training


def test_kept_run_is_judged_by_the_rules_of_the_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = next(each for each in faulty(("mixture",), (0,), ["negate-loss"]) if each.begin is None)
    told = run_training(scenario, keep=partial(keep, tmp_path))
    [again] = judge_again(tmp_path)
    assert again == told
    assert "loss.sign" in told.looks
    monkeypatch.setattr(safelight, "diagnose", lambda _: [])
    [later] = judge_again(tmp_path)
    assert (later.findings, later.looks) == ([], {})
