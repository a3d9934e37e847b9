"""Converged or not: at which noise levels a run still gains, and since when it is level elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from safelight.diagnosis.run_history import ReadingSource
from safelight.vocabulary import FIXED_SET_LOSS_RAW, LEARNING_RATE, LOSS, LOSS_AT_LEVEL, SKILL_AT_LEVEL, Signal

State = Literal["falling", "level", "rising", "unclear"]
BANDS = {"low noise": range(5), "medium noise": range(5, 11), "high noise": range(11, 16)}
EVERYWHERE = "all noise levels"

WORTH = 0.01
"""Share of a loss, or of the skill, that a doubling of the steps has to gain. A doubling of the cost for less than that
pays nowhere; training curves follow power laws, so the doubling is their unit."""
HIDDEN = 0.05
"""The most that a level curve may gain in a doubling for all that its scatter tells: with more, nothing is said."""
FALLING_Z = 2.33  # standard errors of Kendall's statistic: one level curve in a hundred is called falling
RECENT = 2 / 3  # of the steps so far: where the window begins. A half would see a fall long after it has ended
MIN_LOOKS = 6  # looks in a window; with five, no order of them is rarer than one in a hundred
PIECES = 64  # spans that readings of every step are averaged in
AT_END = 4  # looks whose median is the level of the end
WHOLE_RATE_SHARE = 0.5  # of the highest learning rate: before, it was as planned
DECAYED_RATE_SHARE = 0.25  # below, it holds the loss still


@dataclass(frozen=True, slots=True)
class Band:
    """One range of noise levels."""

    name: str
    state: State
    gain: float
    """Per doubling of the steps, as a share of the loss or the skill; Theil–Sen over the newest third."""
    since: int | None
    """Completed steps at which a level band came to where it is."""
    fell_until_decay: bool = False
    """Level, but it fell for as long as the learning rate was high."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of all bands, by one family of signals."""

    signal: str | None = None
    """What was looked at; None if it is too early to say."""
    bands: tuple[Band, ...] = ()
    learning_rate: float | None = None
    """The latest, where it has decayed."""
    advises: bool = True
    """Whether a longer run, or its end, may be advised: not while something else is wrong."""

    def __str__(self) -> str:
        return self.words()

    def words(self) -> str:
        """One or two sentences."""
        if not self.bands:
            return "Too early to say whether the loss has levelled off."
        parts = [self._falling(), self._rising(), self._level(), self._unclear()]
        return " ".join(part for part in parts if part)

    def _falling(self) -> str | None:
        where = self._where("falling")
        return where and f"Loss still falling at {where}{': train longer' if self.advises else ''}."

    def _rising(self) -> str | None:
        where = self._where("rising")
        return where and f"Loss rising at {where}."

    def _level(self) -> str | None:
        level = [band for band in self.bands if band.state == "level"]
        if not level:
            return None
        where = "" if len(level) == len(self.bands) else f" at {self._where('level')}"
        since = f"Loss level{where} since step {max(band.since or 0 for band in level):,}"
        if self.advises and self.learning_rate is not None and any(band.fell_until_decay for band in level):
            return f"{since}, the learning rate has decayed to {self.learning_rate:.2g}: a longer run may still gain."
        is_done = self.advises and len(level) == len(self.bands)
        return f"{since}: stopping is reasonable." if is_done else f"{since}."

    def _unclear(self) -> str | None:
        where = self._where("unclear")
        return where and f"No clear trend at {where}: it fluctuates too much."

    def _where(self, state: State) -> str | None:
        """The bands in words: “low and high noise”."""
        names = [band.name for band in self.bands if band.state == state]
        if len(names) == len(self.bands):
            return EVERYWHERE if names else None
        return " and ".join([*(name.removesuffix(" noise") for name in names[:-1]), names[-1]]) if names else None

    def to_json(self) -> dict[str, Any]:
        bands = [asdict(band) | {"gain": round(band.gain, 4)} for band in self.bands]
        rate = None if self.learning_rate is None else float(f"{self.learning_rate:.4g}")
        return {"sentence": self.words(), "signal": self.signal, "bands": bands, "learning_rate": rate}


@dataclass(frozen=True, slots=True)
class _Looks:
    """What a band lost at each look, as a share of what it loses now; skill with its sign turned."""

    steps: np.ndarray  # completed
    losses: np.ndarray

    def until(self, step: int) -> _Looks:
        return _Looks(self.steps[self.steps <= step], self.losses[self.steps <= step])


def progress(readings: ReadingSource, *, advises: bool = True) -> Progress:
    """By the best evidence there is: paired readings of the fixed set by noise level, else the loss of the batches by
    noise level, else what is known of all levels together."""
    recorded, rates = set(readings.signals()), _rates(readings)
    for family in (SKILL_AT_LEVEL, LOSS_AT_LEVEL, FIXED_SET_LOSS_RAW, LOSS):
        names = {name: [f"{family.name}/{level:02d}" for level in levels] for name, levels in BANDS.items()}
        names = names if family.family else {EVERYWHERE: [family.name]}
        looks_at = {
            name: _looks(readings, family, [each for each in of if each in recorded]) for name, of in names.items()
        }
        bands = [band for name, looks in looks_at.items() if (band := _judge(name, looks, rates)) is not None]
        if bands:
            decayed = rates.latest if rates is not None and rates.has_decayed else None
            return Progress(family.name, tuple(bands), decayed, advises)
    return Progress(advises=advises)


@dataclass(frozen=True, slots=True)
class _Rates:
    """The learning rate, as far as progress depends on it."""

    latest: float
    has_decayed: bool
    whole_until: int
    """Completed steps with at least half of the highest rate."""


def _rates(readings: ReadingSource) -> _Rates | None:
    steps, rates = readings.raw(LEARNING_RATE.name)
    rates = np.where(np.isfinite(rates), rates, 0.0)
    if not len(rates) or not rates.max() > 0:
        return None
    whole = steps[rates >= WHOLE_RATE_SHARE * rates.max()]
    return _Rates(float(rates[-1]), bool(rates[-1] <= DECAYED_RATE_SHARE * rates.max()), int(whole[-1]) + 1)


def _looks(readings: ReadingSource, family: Signal, names: Sequence[str]) -> _Looks:
    """The readings of the levels of a band together, each as important as the others."""
    series = [_finite(*readings.raw(name)) for name in names]
    series = [(steps, numbers) for steps, numbers in series if len(steps)]
    if not series:
        return _Looks(np.zeros(0, np.int64), np.zeros(0))
    common = series[0][0]
    for steps, _ in series[1:]:
        common = np.intersect1d(common, steps)
    shares = [_share(numbers[np.isin(steps, common)], family) for steps, numbers in series if len(common)]
    losses = np.mean(shares, 0) if shares else np.zeros(0)
    steps = common + 1
    return _Looks(steps, losses) if family in (SKILL_AT_LEVEL, FIXED_SET_LOSS_RAW) else _average(steps, losses)


def _finite(steps: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each step once: a page may be shown a record that nobody of ours wrote."""
    usable = np.isfinite(numbers) & (steps >= 0)
    steps, places = np.unique(steps[usable], return_index=True)
    return steps, numbers[usable][places].astype(np.float64)


def _share(numbers: np.ndarray, family: Signal) -> np.ndarray:
    """A skill below that of the linear filter (1) is a share of it: around 0 there would be no scale."""
    now = abs(float(np.median(numbers[-AT_END:])))
    return -numbers / max(now, 1.0) if family is SKILL_AT_LEVEL else numbers / (now or 1.0)


def _average(steps: np.ndarray, losses: np.ndarray) -> _Looks:
    """Losses of batches that draw other images, timesteps and noise each time: means over spans of equal length."""
    if len(steps) <= PIECES:
        return _Looks(steps, losses)
    piece = (np.arange(len(steps)) * PIECES) // len(steps)
    counts = np.bincount(piece)
    return _Looks(np.bincount(piece, steps) / counts, np.bincount(piece, losses) / counts)


def _judge(name: str, looks: _Looks, rates: _Rates | None) -> Band | None:
    """None: too early."""
    if (trend := _trend(looks)) is None:
        return None
    state, gain = trend
    if state != "level":
        return Band(name, state, gain, None)
    before = None if rates is None or not rates.has_decayed else _trend(looks.until(rates.whole_until))
    return Band(name, state, gain, _level_since(looks), before is not None and before[0] == "falling")


def _trend(looks: _Looks) -> tuple[State, float] | None:
    """(state, gain per doubling of the steps) by the slopes between all pairs of looks in the newest third."""
    if len(looks.steps) < MIN_LOOKS:
        return None
    start = min(int(np.searchsorted(looks.steps, RECENT * looks.steps[-1])), len(looks.steps) - MIN_LOOKS)
    doublings, losses = np.log2(looks.steps[start:]), looks.losses[start:]
    one, two = np.triu_indices(len(losses), 1)
    slopes = np.sort((losses[one] - losses[two]) / (doublings[two] - doublings[one]))
    count = len(losses)
    reach = FALLING_Z * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)  # of Kendall's statistic without a trend
    low = float(slopes[max(0, math.floor((len(slopes) - reach) / 2))])
    high = float(slopes[min(len(slopes) - 1, math.ceil((len(slopes) + reach) / 2))])
    gain = float(np.median(slopes))
    if abs(gain) >= WORTH and low * high > 0:
        return ("falling" if gain > 0 else "rising"), gain
    return ("level" if abs(gain) < WORTH and max(high, -low) < HIDDEN else "unclear"), gain


def _level_since(looks: _Looks) -> int:
    """The first look after which no more was gained than a doubling has to be worth. Medians of three: one look that
    fluctuates is not a fall."""
    padded = np.concatenate([looks.losses[:1], looks.losses, looks.losses[-1:]])
    smooth = np.median([padded[:-2], padded[1:-1], padded[2:]], 0)
    above = np.flatnonzero(smooth > np.median(looks.losses[-AT_END:]) + WORTH)
    place = int(above[-1]) + 1 if len(above) else 0
    return int(looks.steps[min(place, len(looks.steps) - 1)])
