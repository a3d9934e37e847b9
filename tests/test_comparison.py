"""Runs side by side: differing settings, the newest state, the best of each signal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recorded_runs import make_run

from safelight.comparison import compare, describe_signals, differing_settings, newest_state
from safelight.record.history import open_history


@pytest.mark.parametrize(
    ("configs", "found"),
    [
        ([{"a": 1, "b": 2}, {"a": 1, "b": 2}], {}),
        ([{"a": 1, "b": 2}, {"a": 1, "b": 3}], {"b": [2, 3]}),
        ([{"a": 1}, None, {"a": 2}], {"a": [1, None, 2]}),
        ([{"a": 1}, None], {}),  # a watched loop has no settings that could differ
        ([{"a": 1}, {"b": None}], {"a": [1, None]}),
        ([None, None], {}),
    ],
)
def test_differing_settings(configs: list[dict[str, Any] | None], found: dict[str, list[Any]]) -> None:
    assert differing_settings(configs) == found


@pytest.mark.parametrize(
    ("newest", "seconds"),
    [('{"seconds": 9.5}', 9.5), ('{"seconds": "9"}', 2.5), ("{}", 2.5), ("[]", 2.5), ("{", 2.5), (None, 2.5)],
)
def test_the_newest_state_that_can_be_read(tmp_path: Path, newest: str | None, seconds: float) -> None:
    for name, content in (("step_00000002", '{"seconds": 2.5}'), ("step_00000009", newest)):
        (tmp_path / name).mkdir()
        if content is not None:
            (tmp_path / name / "state.json").write_text(content)
    assert newest_state(tmp_path, "seconds", float) == seconds
    assert newest_state(tmp_path / "none", "seconds", float) is None


def test_what_is_better_is_known_of_some_signals(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    with open_history(run / "record.sqlite") as history:
        found = describe_signals(history)
        assert list(found) == ["probe/ema", "loss/mean"]
        assert (found["probe/ema"]["best"], found["probe/ema"]["best_step"]) == (0.0, 200)
        assert (found["loss/mean"]["best"], found["loss/mean"]["best_step"]) == (None, None)
        assert list(describe_signals(history, ("own",))) == ["own"]
    [one] = compare((run,), ())["runs"]
    assert (one["run"], one["status"], one["step"], one["steps"], one["seconds"]) == (
        str(run), "finished", 300, 300, 75.0
    )  # fmt: skip
