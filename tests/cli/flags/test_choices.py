"""What the flags of commands that open a run stand for."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import refused

from safelight.cli.flags.choices import best_step
from safelight.errors import UsageError


def states(run: Path, content: str) -> None:
    for path in run.glob("checkpoints/step_*/state.json"):
        path.write_text(content)


@pytest.mark.parametrize(
    "content",
    ["", "{", "{}", '{"best_step": null}', '{"best_step": "5"}', '{"best_step": 1.5}'],
)
def test_no_best_yet_is_told_in_words(copied: Path, content: str) -> None:
    states(copied, content)
    with pytest.raises(UsageError, match="no checkpoint that was found best yet"):
        best_step(copied)


def test_a_state_that_is_no_mapping_is_no_best(copied: Path) -> None:
    states(copied, "[]")
    with pytest.raises(UsageError, match="no checkpoint that was found best yet"):
        best_step(copied)


def test_the_newest_checkpoint_says_which_was_best(copied: Path) -> None:
    states(copied, '{"best_step": 6}')
    older = copied / "checkpoints" / "step_00000002"
    older.mkdir()
    (older / "state.json").write_text('{"best_step": 2}')
    assert best_step(copied) == 6
    for path in copied.glob("checkpoints/step_00000006/state.json"):
        path.unlink()
    best = best_step(copied)
    assert best in (2, 6)
    states(copied, '{"best_step": 0}')
    assert best_step(copied) == 0, "a step like any other"


def test_a_best_that_is_gone_is_refused_in_words(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    states(copied, '{"best_step": 77}')
    refused(capsys, 2, ["has no checkpoint of step 77", "It has:"], "evaluate", str(copied), "--step=best")
