"""What becomes a message: each finding once, the end with the verdict, a death without a word."""

from __future__ import annotations

import json
from pathlib import Path

from showcase import build_run, set_status

from safelight.pages.notify.messages import RunMessages
from safelight.run import RunFolder


def test_findings_come_once_and_the_end_comes_last(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run", sick=True)
    set_status(run, status="training", heartbeat=2e9)
    messages = RunMessages(RunFolder(run), lambda: True)
    first = list(messages.new())
    assert first
    assert {each["event"] for each in first} == {"finding"}
    assert all(each["finding"]["severity"] in ("error", "warning") for each in first)
    assert all(each["finding"]["code"] in each["text"] for each in first)
    assert list(messages.new()) == []
    set_status(run, status="finished")
    [ended] = messages.new()
    assert (ended["event"], ended["status"], messages.is_over) == ("ended", "finished", True)
    assert ended["text"].startswith("Finished at step 300")
    assert ended["verdict"] in ended["text"]
    json.dumps([*first, ended], allow_nan=False)


def test_a_death_is_told_apart_from_an_end(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run")
    set_status(run, status="training", step=7, heartbeat=2e9)
    messages = RunMessages(RunFolder(run), lambda: False)
    [died] = messages.new()
    assert died["event"] == "died"
    assert died["text"].startswith("Died at step 7")
    assert messages.is_over


def test_an_earlier_attempt_is_not_taken_for_this_one(tmp_path: Path) -> None:
    run = build_run(tmp_path / "run")
    set_status(run, status="interrupted", heartbeat=1e9)
    messages = RunMessages(RunFolder(run), lambda: True)
    assert list(messages.new()) == []
    assert not messages.is_over
    set_status(run, status="finished", heartbeat=2e9)
    assert [each["event"] for each in messages.new()] == ["ended"]


def test_a_run_that_has_recorded_nothing(tmp_path: Path) -> None:
    messages = RunMessages(RunFolder(tmp_path / "none"), lambda: False)
    assert messages.started()["text"] == "Started."
    assert [each["event"] for each in messages.new()] == ["died"]
