from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from torch import nn

import safelight
from safelight.watching import flush_timer
from safelight.watching.flush_timer import FlushTimer
from safelight.watching.loop import Watch


class Counter:
    def __init__(self) -> None:
        self.called = threading.Event()

    def count(self) -> None:
        self.called.set()


def test_it_calls_and_ends_with_its_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush_timer, "SECONDS", 0.001)
    counter = Counter()
    timer, called = FlushTimer(counter.count), counter.called
    assert called.wait(60)
    del counter
    timer._thread.join(60)
    assert not timer._thread.is_alive()


def test_it_ends_when_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush_timer, "SECONDS", 0.001)
    counter = Counter()
    timer = FlushTimer(counter.count)
    timer.close()
    timer._thread.join(60)
    assert not timer._thread.is_alive()


def test_readings_of_an_idle_loop_reach_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without another step and without close: as after os._exit and SIGKILL."""
    monkeypatch.setattr("safelight.monitors.reading_buffer.HOST_SECONDS", 1e9)
    monkeypatch.setattr("safelight.watching.loop.FLUSH_SECONDS", 0.0)
    model = nn.Linear(2, 2)
    watch = safelight.watch(model, run=tmp_path / "run", say=lambda _: None)
    assert isinstance(watch, Watch)
    watch.step(model(torch.ones(1, 2)).mean())
    assert watch._window
    watch._flush_if_late()  # by its timer
    assert not watch._window
    watch.close()
