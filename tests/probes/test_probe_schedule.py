"""When probes run: often at first, rarely later, again on an alarm; and the same in every run."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from safelight.probes.probe_schedule import CLOSE, EVERY, MAGNITUDES_EVERY, RARELY, SELDOM, SETTLED, ProbeSchedule


def steps_of(name: str, until: int, schedule: ProbeSchedule | None = None) -> list[int]:
    schedule, found = schedule or ProbeSchedule(), []
    while schedule.updates < until:
        if schedule.is_quiet if name == "quiet" else getattr(schedule.due, name):
            found.append(schedule.updates)
        schedule.advance()
    return found


def test_the_first_steps_are_all_checked_and_then_pairs() -> None:
    close = steps_of("thorough", 256)
    assert close[:CLOSE] == list(range(CLOSE))
    assert close[CLOSE:] == [step for start in range(CLOSE, 256, EVERY) for step in (start, start + 1)]
    later = [step for step in steps_of("magnitudes", 256) if step >= CLOSE]
    assert {step for step in later if step not in close} == {
        s for s in range(CLOSE, 256, MAGNITUDES_EVERY) if s not in close
    }
    rarely = [*range(CLOSE, SETTLED, RARELY), *range(SETTLED, 2048, SELDOM)]
    assert [s for s in steps_of("noising", 2048) if s >= CLOSE] == rarely
    assert [s for s in steps_of("ema", 2048) if s >= CLOSE] == rarely


def test_quiet_steps_are_those_that_nothing_is_kept_for() -> None:
    quiet = set(steps_of("quiet", 2048))
    for name in ("thorough", "replay", "search", "ema"):
        assert not quiet & set(steps_of(name, 2048))
    assert len(quiet) > 0.85 * 2048


@pytest.mark.parametrize("period", [1, 2, 7, 40, 64, 100, 333])
def test_whatever_comes_back_is_met_again(period: int) -> None:
    """A batch that comes back after any number of steps is checked twice, before long."""
    known: set[int] = set()
    for step in steps_of("thorough", 2 * period + CLOSE + EVERY):
        if step % period in known:
            return
        known.add(step % period)
    pytest.fail("never")


def test_replays_become_rare() -> None:
    for until, most in ((1_000, 20), (10_000, 40), (100_000, 140)):
        assert len(set(steps_of("replay", until)) | set(steps_of("search", until))) <= most


def alarms_of(schedule: ProbeSchedule, numbers: list[float], name: str = "loss/error") -> list[int]:
    """Steps at which an alarm was given."""
    found = []
    for number in numbers:
        before = schedule._alarm_steps
        schedule.check_for_alarm({name: number})
        if schedule._alarm_steps > before:
            found.append(schedule.updates)
        schedule.advance()
    return found


FLAT = [1.0] * 200
WILD = [math.exp(2 * math.sin(step)) for step in range(200)]  # seven times up and down, all the time


@pytest.mark.parametrize(
    ("name", "numbers", "alarms"),
    [
        ("flat", FLAT, []),
        ("falling a thousandfold", [1000 ** (-step / 200) for step in range(200)], []),
        ("always wild", WILD, []),
        ("wild, then a leap beyond that", [*WILD[:150], 1e4, *WILD[151:]], [150]),
        ("a leap", [*FLAT[:100], 10.0, *FLAT[101:]], [100]),
        ("a drop", [*FLAT[:100], *[0.01] * 100], [100]),
        ("a leap too early to know", [1.0, 1.0, 30.0, *FLAT], []),
        ("NaN is for others", [*FLAT[:100], math.nan, *FLAT[101:]], []),
    ],
)
def test_what_schedules_a_replay(name: str, numbers: list[float], alarms: list[int]) -> None:
    assert alarms_of(ProbeSchedule(), numbers) == alarms


def test_an_alarm_is_about_two_steps() -> None:
    schedule = ProbeSchedule()
    alarms_of(schedule, [*FLAT[:100], 10.0])
    assert steps_of("replay", 120, schedule) == [101]  # and step 100 was the first of the two


def test_false_alarms_schedule_ever_fewer_replays() -> None:
    schedule = ProbeSchedule()
    leaps = [math.exp(1.3 ** (2 + step // 20)) for step in range(400)]  # each beyond the last
    numbers = [leap if step % 20 == 19 else 1.0 for step, leap in enumerate(leaps)]
    gaps = [later - earlier for earlier, later in pairwise(alarms_of(schedule, numbers))]
    assert len(gaps) >= 2
    assert all(later >= 1.6 * earlier for earlier, later in pairwise(gaps))


@pytest.mark.parametrize(
    ("loss", "odd"),
    [(1.0, False), (1.9, False), (2.1, True), (0.4, True), (math.nan, True), (math.inf, True), (-1, True)],
)
def test_a_loss_that_is_worth_a_check(loss: float, odd: bool) -> None:
    schedule = ProbeSchedule()
    assert not any(schedule.is_odd(1.0) for _ in range(20))
    assert schedule.is_odd(loss) == odd
