"""Loggers get what the record gets, and a run with broken ones ends as one without them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
from tiny import Quiet, fingerprints, tiny

from safelight import session
from safelight.record.store import read_signal
from safelight.train.outlet import as_tables


def test_steps_with_the_same_signals_make_one_table() -> None:
    rows = [(0, {"a": 1.0, "b": math.nan}), (1, {"a": 2.0, "b": 3.0}), (2, {"a": 4.0}), (3, {"a": 1e300, "b": 0.0})]
    tables = as_tables(rows)
    assert [(table.steps.tolist(), table.names) for table in tables] == [
        ([0, 1], ("a", "b")),
        ([2], ("a",)),
        ([3], ("a", "b")),
    ]
    assert np.isnan(tables[0].values[0, 1])
    assert np.isinf(tables[2].values[0, 0])


def train(path: Path, **settings: object) -> Quiet:
    terminal = Quiet()
    session.train(tiny(**settings), run=path, terminal=terminal)
    return terminal


def test_json_lines_are_the_record(tmp_path: Path) -> None:
    train(tmp_path / "run", log__to="jsonl")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    told = {line["step"]: line["loss/mean"] for line in lines if "loss/mean" in line}
    kept = dict(read_signal(tmp_path / "run" / "record.sqlite", "loss/mean"))
    assert told.keys() == kept.keys() == set(range(12))
    assert all(abs(told[step] - kept[step]) < 1e-6 for step in kept)


def test_a_logger_that_fails_leaves_the_run_as_it_is(tmp_path: Path) -> None:
    plain, sick = tmp_path / "plain", tmp_path / "sick"
    train(plain)
    sick.mkdir()
    (sick / "metrics.jsonl").mkdir()  # where the logger wants to write
    terminal = train(sick, log__to="jsonl")
    assert any("jsonl" in text for text in terminal.said)
    assert fingerprints(plain) == fingerprints(sick)
