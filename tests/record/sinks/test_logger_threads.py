from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from safelight.record.sinks import open_sinks
from safelight.record.sinks.batch import Event, ReadingTable, SinkBatch
from safelight.record.sinks.logger_threads import LoggerThreads

LONG = 300  # seconds until a test gives up: what is awaited ends the wait at once


class Fake:
    """A logger that keeps what it is given, and waits, raises or hangs where it is told to."""

    def __init__(self, at_write: Callable[[], object] = int, at_close: Callable[[], object] = int) -> None:
        self.at_write, self.at_close = at_write, at_close
        self.steps: list[int] = []
        self.written, self.closed = threading.Event(), threading.Event()

    def write(self, batch: SinkBatch) -> None:
        self.at_write()
        self.steps += [step for step, _, _ in batch.events]
        self.written.set()

    def close(self) -> None:
        self.at_close()
        self.closed.set()


def event(step: int) -> SinkBatch:
    return SinkBatch(events=(Event(step, "note", {}),))


def fail() -> None:
    raise RuntimeError("the server burns")


def leave() -> None:
    raise SystemExit(3)


def test_everything_arrives_in_order() -> None:
    one, two = Fake(), Fake()
    pump = LoggerThreads({"one": lambda: one, "two": lambda: two}, pytest.fail)
    for step in range(100):
        pump.put(event(step))
    pump.close(LONG)
    assert one.steps == two.steps == list(range(100))
    assert one.closed.is_set()
    assert two.closed.is_set()


@pytest.mark.parametrize("failure", [fail, leave])
def test_a_logger_that_raises_is_switched_off_and_the_other_goes_on(failure: Callable[[], None]) -> None:
    said: list[str] = []
    sick, healthy = Fake(at_write=failure), Fake()
    pump = LoggerThreads({"sick": lambda: sick, "healthy": lambda: healthy}, said.append)
    for step in range(1000):
        pump.put(event(step))
        if step == 0:
            assert sick.closed.wait(LONG), "what it holds is given back"
    pump.close(LONG)
    assert healthy.steps[-1] == 999
    told = [words for words in said if "sick" in words]
    assert len(told) == 1
    assert "switched off" in told[0]
    assert "the run goes on" in told[0]
    assert ("the server burns" in told[0]) == (failure is fail)


@pytest.mark.parametrize("failure", [fail, leave])
def test_a_logger_that_cannot_be_opened_or_closed_is_told_once(failure: Callable[[], None]) -> None:
    def open_badly() -> Fake:
        failure()
        return Fake()

    said: list[str] = []
    pump = LoggerThreads({"opening": open_badly, "closing": lambda: Fake(at_close=failure)}, said.append)
    pump.put(event(1))
    pump.close(LONG)
    assert sorted(words.split()[2] for words in said) == ["closing", "opening"]


def test_a_stuck_logger_costs_windows_and_never_the_caller() -> None:
    """Its queue stays bounded, the oldest are left out, and that is said at once and at the end."""
    go, said = threading.Event(), list[str]()
    stuck, lively = Fake(at_write=lambda: go.wait(LONG)), Fake()
    pump = LoggerThreads({"stuck": lambda: stuck, "lively": lambda: lively}, said.append, most=8)
    kept: list[weakref.ref[np.ndarray]] = []
    for step in range(500):
        numbers = np.zeros((1, 1), np.float32)
        kept.append(weakref.ref(numbers))
        lively.written.clear()
        pump.put(SinkBatch(readings=(ReadingTable(np.array([step]), ("loss",), numbers),), events=event(step).events))
        del numbers
        assert lively.written.wait(LONG), "a stuck logger holds up another"
    gc.collect()
    assert sum(ref() is not None for ref in kept) <= 10, "what was left out is still in memory"
    assert len([words for words in said if "is too slow" in words]) == 1
    go.set()
    pump.close(LONG)
    assert lively.steps == list(range(500))
    assert stuck.steps[-8:] == list(range(492, 500))
    left_out = 500 - len(stuck.steps)
    assert left_out >= 491
    assert [words for words in said if "was too slow" in words] == [
        f"The logger stuck was too slow: {left_out} windows were left out. The record has them."
    ]


@pytest.mark.parametrize("where", ["open", "write", "close"])
def test_closing_does_not_wait_for_one_that_hangs(where: str) -> None:
    never, said = threading.Event(), list[str]()
    hang = {where: never.wait}
    healthy = Fake()

    def open_it() -> Fake:
        hang.get("open", int)()
        return Fake(hang.get("write", int), hang.get("close", int))

    def say(words: str) -> None:
        """The healthy one has all the time it needs: what it is told of comes while the other is told of."""
        said.append(words)
        pump._lanes[1]._thread.join(LONG)

    pump = LoggerThreads({"hanging": open_it, "healthy": lambda: healthy}, say)
    pump.put(event(1))
    assert healthy.written.wait(LONG)
    pump.close(seconds=0.1)
    assert [words for words in said if "within 0.1 s" in words and "hanging" in words] == said
    assert len(said) == 1
    pump.close(seconds=0.1)
    pump.put(event(2))
    assert len(said) == 1, "told once"
    assert healthy.closed.wait(LONG)
    assert healthy.steps == [1]
    hang.clear()
    never.set()


def test_a_screen_that_raises_does_not_reach_the_training() -> None:
    def broken(words: str) -> None:
        raise OSError("the terminal is gone")

    go = threading.Event()
    pump = LoggerThreads({"sick": lambda: Fake(fail), "slow": lambda: Fake(lambda: go.wait(LONG))}, broken, most=1)
    for step in range(10):
        pump.put(event(step))
    go.set()
    pump.close(LONG)


@pytest.mark.parametrize(("name", "package"), [("tensorboard", "tensorboard"), ("wandb", "wandb")])
def test_a_missing_package_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    for module in [m for m in sys.modules if m == package or m.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "meta_path", [Refuse(package), *sys.meta_path])
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.delenv("WANDB_DISABLED", raising=False)
    said: list[str] = []
    pump = open_sinks([name, "jsonl"], tmp_path, config={}, run_name="run", from_step=0, say=said.append)
    pump.put(event(4))
    pump.close(LONG)
    assert len(said) == 1
    assert f"pip install 'safelight[{name}]'" in said[0]
    assert "the run goes on" in said[0]
    assert '"step": 4' in (tmp_path / "metrics.jsonl").read_text()


class Refuse:
    """Stands in for a machine without the package."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] == self.package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_no_loggers_are_fine(tmp_path: Path) -> None:
    pump = open_sinks([], tmp_path, config={}, run_name="run", from_step=0, say=pytest.fail)
    pump.put(event(1))
    pump.close()
    assert list(tmp_path.iterdir()) == []
