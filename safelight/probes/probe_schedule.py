"""Which probe is due at which update: all of them at first, a pair of steps now and then later, more on an alarm."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from safelight import checks

DENSE_UNTIL_STEP, DENSE_PAIR_INTERVAL = (
    64,
    32,
)  # the first steps are all checked closely; then, of every so many, two in a row
MAGNITUDES_EVERY = 8  # steps between two checks of the loss and the largest values
IDENTITIES = 16  # first steps whose noising is checked
# Then one of so many: until CLOSE_STEP, until SETTLED_STEP, and later
EARLY_INTERVAL, MIDDLE_INTERVAL, LATE_INTERVAL = 16, 64, 256
SETTLED_STEP = 1024
REPLAYED_FIRST = 3
ALARM_COOLDOWN = 32  # steps between two replays on alarm; doubled by every alarm
ALARM_LOG_RATIO = math.log(3.0)  # from the usual: an alarm, not a finding
CHECK_LOG_RATIO = math.log(2.0)  # from the usual: worth a check
BEYOND_FACTOR = 1.25  # times the farthest that numbers have strayed from the usual so far
FIRST_LOOK, LOOK_SHARE = 16, 0.01  # updates; of the training time
MIN_READINGS = 16  # readings until the usual is known
# What replays and searches may cost, in steps of the loop: so many in any case, and a share of all steps beside them
ALLOWANCE, SHARE = 18.0, 0.03
ALWAYS = 16  # the last update at which they are made whatever they cost


class Due(NamedTuple):
    """The probes of one step."""

    thorough: bool  # all that need no copy of the weights; two steps in a row, so that what repeats at once is seen
    magnitudes: bool
    noising: bool
    ema: bool  # at this update and the next one
    replay: bool
    search: bool


@functools.lru_cache(maxsize=4)
def due_at(n: int, alarmed: bool = False) -> Due:
    """After `n` updates."""
    close = n < DENSE_UNTIL_STEP or n % DENSE_PAIR_INTERVAL < 2 or alarmed
    now_and_then = (
        n % (EARLY_INTERVAL if n < DENSE_UNTIL_STEP else MIDDLE_INTERVAL if n < SETTLED_STEP else LATE_INTERVAL) == 0
    )
    return Due(
        thorough=close,
        magnitudes=close or n % MAGNITUDES_EVERY == 0,
        noising=n < IDENTITIES or now_and_then,
        ema=n < REPLAYED_FIRST or now_and_then,
        replay=n < REPLAYED_FIRST or (n >= DENSE_UNTIL_STEP and math.log2(n) % 3 == 0) or alarmed,
        search=n in (1, 4, 16, 32) or n % 1024 == 1023 or (n >= 64 and 0 in (math.log2(n) % 1, math.log2(n / 3) % 1)),
    )


class ProbeSchedule:
    """Counts updates and measures nothing. Depends only on what was measured, so that a repeated run is checked in the
    same way."""

    def __init__(self, share: float = SHARE, *, done: int = 0) -> None:
        """`share`: of the steps' time, that replays and searches may take beside the allowance. `done`: the first
        updates whose replays and searches were made elsewhere."""
        self.updates, self._share, self._done = 0, share, done
        self.spent = 0.0  # on replays and searches, in steps
        self._last: dict[str, float] = {}  # what each of them cost the last time
        self._known: tuple[tuple[int, bool], Due] | None = None
        self._alarm_steps, self._quiet_until, self._patience = 0, 0, ALARM_COOLDOWN
        self._usual: dict[str, float] = {}
        self._strayed: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    @property
    def due(self) -> Due:
        """The same throughout a step, whatever it books; asked for many times in it."""
        place = self.updates, self._alarm_steps > 0
        if self._known is None or self._known[0] != place:
            self._known = place, self._due()
        return self._known[1]

    def _due(self) -> Due:
        due = due_at(self.updates, self._alarm_steps > 0)
        if self.updates < self._done:
            return due._replace(replay=False, search=False)
        if not (due.replay or due.search) or self.updates <= ALWAYS:
            return due
        # An alarm is looked into at once, and what it cost is missing afterwards: there are ever fewer of them.
        left = ALLOWANCE + self._share * self.updates - self.spent
        replay = due.replay and (self._alarm_steps > 0 or self._last.get("replay", 0.0) <= left)
        left -= self._last.get("replay", 0.0) * replay
        return due._replace(replay=replay, search=due.search and self._last.get("search", 0.0) <= left)

    def book(self, kind: str, steps: float) -> None:
        """What a replay or a search has cost, counted in steps of the loop and not by a clock."""
        self._last[kind] = steps
        self.spent += steps

    @property
    def is_quiet(self) -> bool:
        """Nothing is checked before the update."""
        return not (self.due.thorough or self.due.replay or self.due.search or self.due.ema)

    def advance(self) -> None:
        """An update is over."""
        self._alarm_steps = max(0, self._alarm_steps - 1)
        self.updates += 1

    def is_odd(self, loss: float) -> bool:
        """Whether the loss of a step that is not due differs from those before."""
        return not loss > 0 or not math.isfinite(loss) or abs(self._deviation("loss", math.log(loss))) > CHECK_LOG_RATIO

    def check_for_alarm(self, readings: Mapping[str, float]) -> None:
        """Schedules a replay where a step differs from those before; less and less often after false alarms."""
        leaps = (
            readings.get(checks.SAMPLE_PARAMETER_ECHO, 0.0) > 0.95
            or readings.get(checks.SAMPLE_PARAMETER_MOVED, 1.0) == 0
        )
        for name in (checks.LOSS_MSE, checks.SAMPLE_PARAMETER_GRADIENT):
            number = readings.get(name, 0.0)
            if number > 0 and math.isfinite(number):
                leaps |= self._is_leap(name, math.log(number))
        if leaps and self.updates >= self._quiet_until:
            self._alarm_steps = 2  # the second is compared with the first
            self._patience *= 2
            self._quiet_until = self.updates + self._patience

    def _is_leap(self, name: str, number: float) -> bool:
        apart, strayed = abs(self._deviation(name, number)), self._strayed.get(name, 0.0)
        count = self._counts[name] = self._counts.get(name, 0) + 1
        self._strayed[name] = max(strayed, apart)
        return count > MIN_READINGS and apart > max(ALARM_LOG_RATIO, BEYOND_FACTOR * strayed)

    def _deviation(self, name: str, number: float) -> float:
        """From the running mean, which then includes the number."""
        usual = self._usual.get(name, number)
        self._usual[name] = usual + 0.1 * (number - usual)
        return number - usual


class BudgetedSchedule:
    """When a measurement that calls the network many times is due: after 16, 32, 64, … updates, from 1024 on after
    every 1024, and later where all of them together would take more than a share of the time."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self._next, self._last = clock, FIRST_LOOK, 0.0
        self._began = clock()
        self.spent = 0.0  # seconds

    def is_due(self, updates: int, steps_each: float) -> bool:
        """`steps_each`: what one costs at least, in steps of the loop: nothing was measured before the first."""
        if updates < self._next:
            return False
        trained = self._clock() - self._began - self.spent
        expected = max(self._last, steps_each * trained / max(1, updates))
        return self.spent + expected <= LOOK_SHARE * trained

    @contextmanager
    def look(self, updates: int) -> Iterator[None]:
        begun = self._clock()
        try:
            yield
        finally:
            self._last = self._clock() - begun
            self.spent += self._last
            self._next = updates + min(updates, SETTLED_STEP)
