"""Signals as JSON and as CSV."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from series import write

from safelight.errors import UsageError
from safelight.record.dump import choose_signals, describe, write_csv
from safelight.record.history import History, open_history


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    write(tmp_path / "record.sqlite", [(np.arange(4), np.array([0.1, np.nan, 3.0, np.inf]))])
    with open_history(tmp_path / "record.sqlite") as opened:
        yield opened


def test_what_is_not_finite_is_counted_and_null(history: History) -> None:
    found = json.loads(json.dumps(describe(history, "a", points=9), allow_nan=False))
    assert (found["count"], found["nonfinite"], found["high"], found["latest"]) == (4, 2, 3.0, None)
    assert found["points"]["mean"] == pytest.approx([0.1, None, 3.0, None])
    assert describe(history, "none")["count"] == 0


@pytest.mark.parametrize(
    ("span", "points", "lines"),
    [
        ((None, None), None, ["signal,step,number", "a,0,0.1", "a,1,nan", "a,2,3.0", "a,3,inf"]),
        ((2, 2), None, ["signal,step,number", "a,2,3.0"]),
        ((2, 2), 1, ["signal,first,last,count,nonfinite,low,high,mean,latest", "a,2,2,1,0,3.0,3.0,3.0,3.0"]),
    ],
)
def test_csv_has_the_fewest_digits_that_read_back(history: History, span: tuple, points, lines: list[str]) -> None:
    file = io.StringIO()
    write_csv(file, history, ["a"], span, points)
    assert file.getvalue().splitlines() == lines


def test_signals_are_chosen_by_name() -> None:
    assert choose_signals(["a", "b"], ()) == ["a", "b"]
    assert choose_signals(["a", "b"], ("b", "b")) == ["b"]
    with pytest.raises(UsageError, match=r"no signal 'loss/meam'.*loss/mean"):
        choose_signals(["loss/mean"], ("loss/meam",))
