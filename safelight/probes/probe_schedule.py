"""Which probe is due at which update: all of them at first, a pair of steps now and then later, more on an alarm."""

from __future__ import annotations

import math
from collections.abc import Mapping

from safelight import checks

CLOSE, EVERY = 64, 32  # the first steps are all checked closely, then two in a row of every so many
GLANCED = 8  # steps between two checks of the loss and the largest values
IDENTITIES = 16  # first steps whose noising is checked
OFTEN, RARELY, SELDOM = 16, 64, 256  # then one of so many: until CLOSE, until SETTLED, and later
SETTLED = 1024
REPLAYED_FIRST = 3
PATIENCE = 32  # steps between two replays on alarm; doubled by every alarm
LEAP = math.log(3.0)  # from the usual: an alarm, not a finding
ODD = math.log(2.0)  # from the usual: worth a check
BEYOND = 1.25  # times the farthest that numbers have strayed from the usual so far
RIPE = 16  # readings until the usual is known


class ProbeSchedule:
    """Counts updates and measures nothing. Depends only on what was seen, so that a repeated run is checked in the same
    way."""

    def __init__(self) -> None:
        self.seen = 0  # updates
        self._asked, self._quiet_until, self._patience = 0, 0, PATIENCE
        self._usual: dict[str, float] = {}
        self._strayed: dict[str, float] = {}
        self._heard: dict[str, int] = {}

    @property
    def is_close(self) -> bool:
        """Two in a row: what repeats at once is seen."""
        return self.seen < CLOSE or self.seen % EVERY < 2 or self._asked > 0

    @property
    def is_glanced(self) -> bool:
        return self.is_close or self.seen % GLANCED == 0

    @property
    def is_about_noising(self) -> bool:
        return self.seen < IDENTITIES or self._is_now_and_then

    @property
    def is_about_average(self) -> bool:
        """At this update and the next one."""
        return self.seen < REPLAYED_FIRST or self._is_now_and_then

    @property
    def _is_now_and_then(self) -> bool:
        return self.seen % (OFTEN if self.seen < CLOSE else RARELY if self.seen < SETTLED else SELDOM) == 0

    def is_odd(self, loss: float) -> bool:
        """Whether the loss of a step that is not due differs from those before."""
        if not loss > 0 or not math.isfinite(loss):
            return True
        usual = self._usual.get("told", math.log(loss))
        apart = math.log(loss) - usual
        self._usual["told"] = usual + 0.1 * apart
        return abs(apart) > ODD

    @property
    def is_replayed(self) -> bool:
        n = self.seen
        return n < REPLAYED_FIRST or (n >= CLOSE and _is_power(n, 8)) or self._asked > 0

    @property
    def is_searched(self) -> bool:
        n = self.seen
        often = n in (1, 4, 16) or (n >= 32 and (_is_power(n, 2) or (n % 3 == 0 and _is_power(n // 3, 2))))
        return often or n % 1024 == 1023

    @property
    def is_quiet(self) -> bool:
        """Nothing is checked before the update."""
        return not (self.is_close or self.is_replayed or self.is_searched or self.is_about_average)

    def turn(self) -> None:
        """An update is over."""
        self._asked = max(0, self._asked - 1)
        self.seen += 1

    def listen(self, found: Mapping[str, float]) -> None:
        """Schedules a replay where a step differs from those before; less and less often after false alarms."""
        leaps = found.get(checks.SENTINEL_ECHO, 0.0) > 0.95 or found.get(checks.SENTINEL_MOVED, 1.0) == 0
        for name in (checks.LOSS_ERROR, checks.SENTINEL_GRADIENT):
            number = found.get(name, 0.0)
            if number > 0 and math.isfinite(number):
                leaps |= self._is_leap(name, math.log(number))
        if leaps and self.seen >= self._quiet_until:
            self._asked = 2  # steps: the second is compared with the first
            self._patience *= 2
            self._quiet_until = self.seen + self._patience

    def _is_leap(self, name: str, number: float) -> bool:
        usual = self._usual.get(name, number)
        apart, strayed = abs(number - usual), self._strayed.get(name, 0.0)
        count = self._heard[name] = self._heard.get(name, 0) + 1
        self._usual[name] = usual + 0.1 * (number - usual)
        self._strayed[name] = max(strayed, apart)
        return count > RIPE and apart > max(LEAP, BEYOND * strayed)


def _is_power(n: int, base: int) -> bool:
    while n > 1 and n % base == 0:
        n //= base
    return n == 1
