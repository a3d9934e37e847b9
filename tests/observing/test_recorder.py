"""Loggers get what the record gets, and a run with broken ones ends as one without them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny import Quiet, fingerprints, tiny

from safelight import run as run_module
from safelight import start
from safelight.record.history import open_history
from safelight.record.reading import read_signal
from safelight.run import RunFolder


def train(path: Path, **settings: object) -> Quiet:
    terminal = Quiet()
    start.train(tiny(**settings), run=path, terminal=terminal)
    return terminal


def test_json_lines_are_the_record(tmp_path: Path) -> None:
    train(tmp_path / "run", log__to="jsonl")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    told = {line["step"]: line["loss/mean"] for line in lines if "loss/mean" in line}
    kept = dict(read_signal(tmp_path / "run" / "record.sqlite", "loss/mean"))
    assert told.keys() == kept.keys() == set(range(12))
    assert all(abs(told[step] - kept[step]) < 1e-6 for step in kept)


def test_a_logger_that_fails_leaves_the_run_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, sick = tmp_path / "plain", tmp_path / "sick"
    train(plain)
    create = run_module.create_run

    def create_with_obstacle(path: Path) -> RunFolder:
        folder = create(path)
        (folder.path / "metrics.jsonl").mkdir()  # where the logger wants to write
        return folder

    monkeypatch.setattr("safelight.start.create_run", create_with_obstacle)
    terminal = train(sick, log__to="jsonl")
    assert any("jsonl" in text for text in terminal.said)
    assert fingerprints(plain) == fingerprints(sick)


def test_pictures_are_told_for_the_step_they_are_of(tmp_path: Path) -> None:
    train(tmp_path / "run", sample__every=4, log__to="jsonl")
    with open_history(tmp_path / "run" / "record.sqlite") as history:
        pictures = history.pictures("samples")
    assert [(each.step, each.kind, str(each.path)) for each in pictures] == [
        (step, "samples", f"samples/step_{step:08d}.png") for step in (4, 8, 12)
    ]
    assert all((tmp_path / "run" / each.path).is_file() and each.width > 10 for each in pictures)


def test_a_picture_that_cannot_be_read_back_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safelight.training.pictures.draw_preview", lambda *_, **__: None)
    terminal = train(tmp_path / "run", sample__every=4)
    assert any("could not be made" in text for text in terminal.said)
    assert (tmp_path / "run" / "checkpoints" / "step_00000012").is_dir()
