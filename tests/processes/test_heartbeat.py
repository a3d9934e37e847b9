"""Whose silence is noticed, and in which words: by a clock that only the test moves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch.distributed as dist

from safelight.processes import heartbeat as module
from safelight.processes.heartbeat import BEAT_INTERVAL, FIRST_PATIENCE, Heartbeat

PATIENCE = 8.0


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Company:
    """The first of three processes; the signs of life of the others are given by hand."""

    def __init__(self, clock: Clock, store: dist.TCPStore) -> None:
        self._clock, self._store = clock, dist.PrefixStore("safelight/token", store)
        self._beats = [0, 0, 0]
        for rank in (1, 2):
            self._store.set(f"here/{rank}", "1")
            self.beat(rank, progress=0)
        self.first = Heartbeat(0, 3, "token", patience=PATIENCE)

    def beat(self, rank: int, *, progress: int, watched: bool = True) -> None:
        self._beats[rank] += 1
        self._store.set(f"beat/{rank}", f"{self._beats[rank]} {progress} {int(watched)}")

    def look(self, seconds: float, living: Callable[[], None]) -> str | None:
        """What the first process knows after so long, in which the others live like this."""
        for _ in range(round(seconds / BEAT_INTERVAL)):
            self._clock.now += BEAT_INTERVAL
            living()
            self.first._check_others()
        return self.first.lost


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(Heartbeat, "_run", lambda self: None)
    monkeypatch.setattr(Heartbeat, "_await_answers", lambda self: None)
    return clock


@pytest.fixture
def company(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Company:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(store.port))
    return Company(clock, store)


def test_who_beats_and_goes_on_is_not_lost(company: Company) -> None:
    def living() -> None:
        for rank in (1, 2):
            company.beat(rank, progress=company._beats[rank])

    assert company.look(10 * PATIENCE, living) is None


def test_who_is_busy_on_its_own_may_take_its_time(company: Company) -> None:
    def living() -> None:
        for rank in (1, 2):
            company.beat(rank, progress=9, watched=rank != 2)
        company.beat(1, progress=company._beats[1])

    assert company.look(10 * PATIENCE, living) is None


def test_who_is_silent_is_named_when_the_patience_ends(company: Company) -> None:
    def living() -> None:
        company.beat(1, progress=company._beats[1])

    assert company.look(PATIENCE, living) is None
    assert company.look(2 * BEAT_INTERVAL, living) == "Process 2 is gone: no heartbeat for 8 seconds."


def test_of_two_the_one_that_is_silent_for_longer_is_named(company: Company) -> None:
    company.look(1, lambda: company.beat(2, progress=9))
    assert str(company.look(2 * PATIENCE, lambda: None)).startswith("Process 1 is gone")


@pytest.mark.parametrize(("progress", "patience"), [(9, PATIENCE), (1, FIRST_PATIENCE * PATIENCE)])
def test_who_beats_in_one_and_the_same_step_is_named(company: Company, progress: int, patience: float) -> None:
    """Later in the first steps, which may take long."""

    def living() -> None:
        company.beat(1, progress=company._beats[1])
        company.beat(2, progress=progress)

    assert company.look(patience, living) is None
    words = f"Process 2 is gone: it has been in the same step for {patience:.0f} seconds."
    assert company.look(2 * BEAT_INTERVAL, living) == words


def test_after_a_broken_connection_silence_is_told_sooner(company: Company) -> None:
    def living() -> None:
        company.beat(1, progress=company._beats[1])

    assert company.look(2, living) is None
    company.first.write("broken", "1")
    assert str(company.look(BEAT_INTERVAL, living)).startswith("Process 2 is gone")
