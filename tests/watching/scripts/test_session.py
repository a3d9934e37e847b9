"""What is printed, handed over and stopped inside of a script's process; the capture is a stand-in."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from safelight.watching.auto import StopAfter
from safelight.watching.scripts import session
from safelight.watching.scripts.launch import Options
from safelight.watching.scripts.notes import Notes
from safelight.watching.scripts.session import ScriptSession


class StandIn:
    """Counts the updates of a loop; stops after some, once."""

    def __init__(self, say: Callable[[str], None], stop_after: int | None) -> None:
        self.say, self.stop_after, self.updates, self.facts = say, stop_after, 0, dict[str, Any]()
        self.finished = 0

    def start(self) -> StandIn:
        return self

    @property
    def watch(self) -> object | None:
        return SimpleNamespace() if self.updates else None

    @property
    def folder(self) -> Path | None:
        return Path("runs/watch-1") if self.updates else None

    is_known = True

    def recognised(self) -> list[str]:
        return ["Linear, 6 of 6 parameters in SGD."]

    def finish(self, **facts: Any) -> None:
        self.finished += 1
        self.facts = facts
        self.say("Safelight: 1 error.")


class Loop:
    """A session on a loop of this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, options: Options) -> None:
        def start(*, say: Callable[[str], None], stop_after: int | None, **given: Any) -> StandIn:
            self.given, self.seen = given, StandIn(say, stop_after)
            return self.seen

        monkeypatch.setattr(session, "Captured", start)
        self.lines: list[str] = []
        self.session = ScriptSession(json.dumps(options._asdict()), self.lines.append)
        self.optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(()))], lr=0.1)
        self.optimizer.register_step_post_hook(self._count)

    def _count(self, *_: Any) -> None:
        self.seen.updates += 1
        if self.seen.updates == self.seen.stop_after:
            raise StopAfter

    def train(self, updates: int) -> None:
        for _ in range(updates):
            self.optimizer.step()


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Loop]]:
    made: list[Loop] = []

    def make(**options: Any) -> Loop:
        made.append(Loop(monkeypatch, Options(**options)))
        return made[-1]

    yield make
    for each in made:
        each.session.end()  # takes the hooks off


def test_what_was_recognised_is_said_once_and_then_where_the_page_is(loop: Callable[..., Loop]) -> None:
    found = loop(steps=9, run="runs/mine", loggers=("jsonl",))
    assert found.given == {"run": "runs/mine", "steps": 9, "loggers": ("jsonl",)}
    found.train(2)
    assert found.lines == []
    found.train(5)
    assert found.lines == ["Linear, 6 of 6 parameters in SGD.", "the page: safelight dashboard runs/watch-1"]
    found.session.end()
    found.session.end()
    assert found.lines[2:] == ["Safelight: 1 error."]
    assert (found.seen.finished, found.seen.facts) == (1, {})


def test_a_short_loop_is_announced_at_its_end(loop: Callable[..., Loop]) -> None:
    found = loop()
    found.train(1)
    found.session.end()
    assert [line.split()[0] for line in found.lines] == ["Linear,", "the", "Safelight:"]


def test_nothing_is_said_where_it_is_quiet_or_nothing_was_trained(loop: Callable[..., Loop]) -> None:
    quiet = loop(quiet=True)
    quiet.train(4)
    quiet.session.end()
    assert quiet.lines == []
    idle = loop()
    idle.session.end()
    assert "no training was seen" in idle.lines[-1]


def test_a_loop_in_which_no_update_is_recognised_is_stopped_too(loop: Callable[..., Loop], tmp_path: Path) -> None:
    """As where the optimizer holds other parameters than the network's."""
    found = loop(steps=2, handover=str(tmp_path / "notes"))
    found.optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(()))], lr=0.1)  # not counted
    with pytest.raises(StopAfter):
        found.train(999)
    found.session.end()
    notes = Notes.read(tmp_path / "notes")
    assert notes is not None
    assert (notes.updates, notes.ending) == (0, "stopped")
    assert "optimizers made 11 steps, but none of them holds" in notes.recognised[0]


def test_a_crash_is_noted(loop: Callable[..., Loop], monkeypatch: pytest.MonkeyPatch) -> None:
    found = loop()
    monkeypatch.setattr("sys.last_value", ValueError("x"), raising=False)
    found.session.end()
    assert found.seen.facts["status"] == "crashed"


def test_a_failing_end_is_said_and_no_more(loop: Callable[..., Loop]) -> None:
    found = loop()
    found.seen.finish = lambda **_: 1 / 0  # type: ignore[method-assign]
    found.session.end()
    assert "ZeroDivisionError" in found.lines[0]


def test_a_check_stops_and_hands_over(loop: Callable[..., Loop], tmp_path: Path) -> None:
    found = loop(steps=3, handover=str(tmp_path / "notes"), quiet=True)
    assert (found.seen.stop_after, found.given["steps"]) == (3, None)
    with pytest.raises(StopAfter):
        found.train(9)
    found.session.end()
    notes = Notes.read(tmp_path / "notes")
    assert notes == Notes(3, "stopped", ("Linear, 6 of 6 parameters in SGD.",), notes.said if notes else (), True)
    assert found.seen.facts == {"status": "ended"}
    assert found.lines == []


def test_a_loop_that_catches_everything_is_ended(
    loop: Callable[..., Loop], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Left(BaseException): ...

    def leave(code: int) -> None:
        raise Left

    monkeypatch.setattr(os, "_exit", leave)
    found = loop(steps=2, handover=str(tmp_path / "notes"))
    caught = 0

    def train_on() -> None:
        nonlocal caught
        while caught < 20:
            try:
                found.train(1)
            except StopAfter:
                caught += 1

    with pytest.raises(Left):
        train_on()
    assert caught == 1 + session.MAX_STOPS
    notes = Notes.read(tmp_path / "notes")
    assert notes is not None
    assert (notes.updates, notes.ending) == (2, "swallowed")


def test_a_script_that_is_busy_for_too_long_is_ended(
    loop: Callable[..., Loop], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = threading.Event()
    monkeypatch.setattr(os, "_exit", lambda code: left.set())
    monkeypatch.setattr(session, "GRACE", 0.01)
    found = loop(steps=1, handover=str(tmp_path / "notes"))
    with pytest.raises(StopAfter):
        found.train(1)
    assert left.wait(60)
    notes = Notes.read(tmp_path / "notes")
    assert notes is not None
    assert notes.ending == "late"


def test_a_script_that_ends_before_is_told_from_one_that_was_stopped(loop: Callable[..., Loop], tmp_path: Path) -> None:
    found = loop(steps=3, handover=str(tmp_path / "notes"))
    found.train(1)
    found.session.end()
    notes = Notes.read(tmp_path / "notes")
    assert notes is not None
    assert notes.ending == "itself"


def test_a_fork_has_no_business_with_it(loop: Callable[..., Loop], monkeypatch: pytest.MonkeyPatch) -> None:
    found = loop()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    found.train(5)
    assert found.lines == []
