"""When probes run: often at first, rarely later, again on an alarm; and the same in every run."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from safelight.probes import probe_schedule
from safelight.probes.probe_schedule import (
    ALLOWANCE,
    ALWAYS,
    DENSE_PAIR_INTERVAL,
    DENSE_UNTIL_STEP,
    LATE_INTERVAL,
    LOOK_SHARE,
    MAGNITUDES_EVERY,
    MIDDLE_INTERVAL,
    SETTLED_STEP,
    BudgetedSchedule,
    ProbeSchedule,
)


def steps_of(name: str, until: int, schedule: ProbeSchedule | None = None) -> list[int]:
    schedule, found = schedule or ProbeSchedule(), []
    while schedule.updates < until:
        if schedule.is_quiet if name == "quiet" else getattr(schedule.due, name):
            found.append(schedule.updates)
        schedule.advance()
    return found


def test_the_first_steps_are_all_checked_and_then_pairs() -> None:
    close = steps_of("thorough", 256)
    assert close[:DENSE_UNTIL_STEP] == list(range(DENSE_UNTIL_STEP))
    assert close[DENSE_UNTIL_STEP:] == [
        step for start in range(DENSE_UNTIL_STEP, 256, DENSE_PAIR_INTERVAL) for step in (start, start + 1)
    ]
    later = [step for step in steps_of("magnitudes", 256) if step >= DENSE_UNTIL_STEP]
    assert {step for step in later if step not in close} == {
        s for s in range(DENSE_UNTIL_STEP, 256, MAGNITUDES_EVERY) if s not in close
    }
    rarely = [*range(DENSE_UNTIL_STEP, SETTLED_STEP, MIDDLE_INTERVAL), *range(SETTLED_STEP, 2048, LATE_INTERVAL)]
    assert [s for s in steps_of("noising", 2048) if s >= DENSE_UNTIL_STEP] == rarely
    assert [s for s in steps_of("ema", 2048) if s >= DENSE_UNTIL_STEP] == rarely


def test_quiet_steps_are_those_that_nothing_is_kept_for() -> None:
    quiet = set(steps_of("quiet", 2048))
    for name in ("thorough", "replay", "search", "ema"):
        assert not quiet & set(steps_of(name, 2048))
    assert len(quiet) > 0.85 * 2048


@pytest.mark.parametrize("period", [1, 2, 7, 40, 64, 100, 333])
def test_whatever_comes_back_is_met_again(period: int) -> None:
    """A batch that comes back after any number of steps is checked twice, before long."""
    known: set[int] = set()
    for step in steps_of("thorough", 2 * period + DENSE_UNTIL_STEP + DENSE_PAIR_INTERVAL):
        if step % period in known:
            return
        known.add(step % period)
    pytest.fail("never")


def test_replays_become_rare() -> None:
    for until, most in ((1_000, 20), (10_000, 40), (100_000, 140)):
        assert len(set(steps_of("replay", until)) | set(steps_of("search", until))) <= most


def booked(share: float, until: int, search: float, alarms: tuple[int, ...] = ()) -> list[tuple[int, float]]:
    """(update, steps spent so far) of everything that was due, where a search costs so many steps."""
    schedule, found = ProbeSchedule(share), list[tuple[int, float]]()
    for n in range(until):
        schedule._alarm_steps = max(schedule._alarm_steps, 2 * (n in alarms))
        for kind, cost in (("replay", 1.4), ("search", search)):
            if getattr(schedule.due, kind):
                schedule.book(kind, cost)
                found.append((n, schedule.spent))
        schedule.advance()
    return found


@pytest.mark.parametrize("share", [0.0, 0.01, 0.03, 0.1])
@pytest.mark.parametrize("search", [0.5, 3.0, 12.0])
def test_a_budget_bounds_what_comes_after_the_first_steps(share: float, search: float) -> None:
    found = booked(share, 4000, search)
    assert {0, 1, 2, 4, 16} <= {n for n, _ in found}, "whatever it costs"
    assert all(spent <= ALLOWANCE + share * n for n, spent in found if n > ALWAYS)
    assert share == 0 or search == 12 or max(n for n, _ in found) > 1000, "it never ends"


def test_an_alarm_is_looked_into_at_once_and_paid_for_later() -> None:
    calm, alarmed = booked(0.03, 600, 3.0), booked(0.03, 600, 3.0, alarms=(100, 140, 200))
    assert {100, 101, 140, 141, 200, 201} <= {n for n, _ in alarmed}
    assert max(spent for _, spent in alarmed) <= ALLOWANCE + 0.03 * 600
    assert len([n for n, _ in alarmed if n > 201]) < len([n for n, _ in calm if n > 201])


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


def looks(updates: int, step_seconds: float, look_seconds: float, steps_each: float) -> tuple[list[int], float]:
    """After which updates, and the share of the time."""
    now, found = 0.0, list[int]()
    schedule = BudgetedSchedule(lambda: now)
    for made in range(1, updates + 1):
        now += step_seconds
        if schedule.is_due(made, steps_each):
            found.append(made)
            with schedule.look(made):
                now += look_seconds
    return found, schedule.spent / (now - schedule.spent)


def test_looks_without_cost_are_as_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_schedule, "LOOK_SHARE", math.inf)
    assert looks(4000, 0.1, 9.0, 9.0)[0] == [16, 32, 64, 128, 256, 512, 1024, 2048, 3072]


@pytest.mark.parametrize(("look_seconds", "steps_each"), [(0.3, 3.0), (0.02, 0.2), (5.0, 50.0)])
def test_looks_take_a_small_share_of_the_time(look_seconds: float, steps_each: float) -> None:
    found, share = looks(20_000, 0.1, look_seconds, steps_each)
    assert len(found) > 2
    assert share <= LOOK_SHARE
    assert found[0] >= steps_each / LOOK_SHARE, "also the first one"


def test_a_look_that_is_dearer_than_expected_is_made_up_for() -> None:
    found, share = looks(20_000, 0.1, 5.0, 1.0)
    assert found[:2] == [100, 10_000]
    assert share <= LOOK_SHARE
