"""The folder and the record of a loop that is not ours."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from safelight.errors import UsageError
from safelight.record.reading import read_signal
from safelight.run import RunFolder
from safelight.watching.watched_run import WatchedRun, crashed


def opened(path: Path, step: int = 0) -> WatchedRun:
    return WatchedRun(path, step, print, steps=100)


def test_a_run_is_opened_reported_and_closed_once(tmp_path: Path) -> None:
    run = opened(tmp_path / "run")
    assert RunFolder(tmp_path / "run").status()["status"] == "training"
    run.close(step=1)
    run.close(**crashed(ValueError("too late")))
    status = RunFolder(tmp_path / "run").status()
    assert (status["status"], status["step"], status["steps"], status["kind"]) == ("finished", 1, 100, "watched")
    assert "error" not in status


def test_a_crash_is_named(tmp_path: Path) -> None:
    opened(tmp_path / "run").close(**crashed(ValueError("no")))
    status = RunFolder(tmp_path / "run").status()
    assert (status["status"], status["error"]) == ("crashed", "ValueError: no")


def test_what_was_recorded_from_the_step_on_is_replaced(tmp_path: Path) -> None:
    for start, value in ((0, 1.0), (2, 9.0)):
        run = opened(tmp_path / "run", start)
        for step in range(start, 4):
            run.record.add(step, {"loss/mean": value})
        run.close()
    readings = read_signal(tmp_path / "run" / "record.sqlite", "loss/mean")
    assert readings == [(0, 1.0), (1, 1.0), (2, 9.0), (3, 9.0)]


@pytest.mark.parametrize("loggers", ["jsonl", " jsonl,", ["jsonl"], "jsonl, tensorboard"])
def test_loggers_are_named_in_a_list_or_separated_by_commas(tmp_path: Path, loggers: str | list[str]) -> None:
    run = WatchedRun(tmp_path / "run", 0, print, loggers=loggers)
    run.record.add(0, {"loss/mean": 1.0})
    run.close()
    assert (tmp_path / "run" / "metrics.jsonl").is_file()
    assert (tmp_path / "run" / "tensorboard").is_dir() == ("tensorboard" in loggers)


@pytest.mark.parametrize(
    ("loggers", "words"),
    [
        (["tensorbord"], "There is no logger 'tensorbord'"),
        ("jsonl,paper", "logger 'paper'"),
        ([], "already holds a record"),
    ],
)
def test_what_cannot_be_opened_is_refused_in_words(tmp_path: Path, loggers: list[str], words: str) -> None:
    opened(tmp_path / "run").close()
    with pytest.raises(UsageError, match=words):
        WatchedRun(tmp_path / "run", 0, print, loggers=loggers)


def test_a_folder_that_cannot_be_made_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be made"):
        opened(tmp_path / "file" / "run")


@pytest.mark.parametrize("way", ["removed", "a file", "moved"])
def test_a_loop_outlives_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Said once; the record begins again where it can."""
    monkeypatch.setattr("safelight.watching.watched_run.HEARTBEAT_SECONDS", 0.0)
    said: list[str] = []
    path = tmp_path / "run"
    run = WatchedRun(path, 0, said.append)
    run.record.add(0, {"a": 1.0})
    run.beat(1)
    run.record.flush(wait=True)
    path.rename(tmp_path / "moved") if way == "moved" else shutil.rmtree(path)
    if way == "a file":
        path.touch()
    for step in (2, 3):
        run.beat(step)
        run.record.add(step, {"a": 1.0})
    if way == "a file":
        assert sum("deleted" in words for words in said) == len(said) == 1
        path.unlink()
        run.beat(4)
        run.record.add(4, {"a": 1.0})
    run.close()
    assert [step for step, _ in read_signal(path / "record.sqlite", "a")] == ([4] if way == "a file" else [2, 3])
    assert sum("begins again" in words for words in said) == 1
    assert run.folder.status()["status"] == "finished"


def test_a_folder_that_is_gone_at_the_end_is_reported(tmp_path: Path) -> None:
    said: list[str] = []
    run = WatchedRun(tmp_path / "run", 0, said.append)
    run.record.flush(wait=True)
    shutil.rmtree(tmp_path / "run")
    run.close()
    assert ["gone" in words for words in said] == [True]
