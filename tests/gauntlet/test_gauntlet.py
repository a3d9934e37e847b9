"""The fast subset: what was found once is found again, healthy runs are left alone, and no run dies unasked."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from gauntlet.plan import fast, with_twins_of_sick
from gauntlet.pool import carry_out_all
from gauntlet.report import fallen, read, to_markdown, write, write_floor
from gauntlet.scenario import Verdict
from gauntlet.score import score

pytestmark = pytest.mark.timeout(1800)  # half a minute alone, and many times that beside others
FLOOR = Path(__file__).parents[2] / "gauntlet" / "results" / "fast.json"


@pytest.fixture(scope="module")
def verdicts() -> list[Verdict]:
    """By a clock that stands still while other programs run: on a busy machine a loop would seem to wait for images."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("safelight.watching.loop.time", SimpleNamespace(perf_counter=time.process_time))
        return carry_out_all(with_twins_of_sick(fast()), jobs=1)


def test_nothing_falls_out(verdicts: list[Verdict]) -> None:
    assert fallen(verdicts, FLOOR) == {}


def test_healthy_runs_are_left_alone(verdicts: list[Verdict]) -> None:
    assert [(each.id, each.findings) for each in score(verdicts).false_alarms] == []


def test_no_run_dies_unasked(verdicts: list[Verdict]) -> None:
    assert [(each.id, each.error) for each in verdicts if each.error and not each.preflight] == []
    for each in verdicts:
        if each.kind != "faulty":
            assert each.loss is not None
            assert each.loss[1] < 0.7 * each.loss[0], f"{each.id} does not learn"


def test_what_was_found_once_must_be_found_again(verdicts: list[Verdict], tmp_path: Path) -> None:
    """The floor can break."""
    higher = {"detected": ["mixture: never-met"], "top1": []}
    (tmp_path / "fast.json").write_text(json.dumps(higher))
    assert fallen(verdicts, tmp_path / "fast.json") == {"detected": ["mixture: never-met"]}
    write_floor(verdicts, tmp_path / "fast.json", "")
    assert fallen(verdicts, tmp_path / "fast.json") == {}


def test_results_come_back_from_their_file(verdicts: list[Verdict], tmp_path: Path) -> None:
    write(verdicts, tmp_path, command="python -m gauntlet --fast")
    assert to_markdown(read(tmp_path / "gauntlet.json"), "x") == to_markdown(verdicts, "x")
