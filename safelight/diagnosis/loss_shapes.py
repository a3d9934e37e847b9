"""Shapes of a loss curve that chance does not make: jumps that last, slow rises, oscillation, a loss that stays.

The loss of a diffusion model is skewed by the timesteps that were drawn, and its draws are independent: tests go by
ranks, or by means of blocks against the differences of neighbours, and share one part of the error budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from safelight.diagnosis.budget import allowed, bound

TEST = "shape of the loss"
SHAPES = 4  # jumps, rises, oscillation and divergence share its budget
MIN_LOSSES_BEFORE = 32  # losses before a jump
BEFORE = 128  # losses that a jump is compared with, where there are as many
MIN_LOSSES_IN_ROW = 8  # losses in a row
SETTLING_RATIO = 1.5  # first half of these over the second; learning that sets in at once has 2 and more
LEARNT_SHARE = 0.6  # of the first losses: below it a curve has had its first fall
STEPS_IN_ONE = 4.0  # steps behind a jump that it is worth at least, where the new task is learnt on
BLOCKS = 8  # that a slow rise is looked for in
MIN_BLOCK = 16  # losses of a block
WAVES = (4, 8, 16, 32, 64)  # losses whose mean is one point of a wave
SWINGS = 4  # up, down, up, down


@dataclass(frozen=True, slots=True)
class Jump:
    """Places in the curve; the loss in the middle of what came before it, and of the steps after it."""

    first: int
    ended_at: int | None
    before: float
    after: float

    @property
    def factor(self) -> float:
        return self.after / self.before


@dataclass(frozen=True, slots=True)
class Rise:
    first: int
    """The middle of the lowest block."""
    lowest: float
    latest: float


@dataclass(frozen=True, slots=True)
class Oscillation:
    first: int
    last: int
    swings: int
    factor: float
    """The middle one of its swings."""


def is_judged(losses: np.ndarray) -> bool:
    """Whether logarithms may be taken: an error is above 0."""
    return len(losses) > MIN_LOSSES_BEFORE and bool(np.isfinite(losses).all() and (losses > 0).all())


def jumps_up(losses: np.ndarray, factor: float) -> Jump | None:
    """The last time that the loss left all that came before it, from one step to the next, and stayed there."""
    places = _first_ones(np.flatnonzero(_leaves(losses, 0.0)))
    return next((jump for p in places[::-1] if (jump := _jump(losses, int(p), 1)).factor >= factor), None)


def _first_ones(places: np.ndarray) -> np.ndarray:
    """The first of those that lie together: only what came before it has none of the new losses."""
    return places[np.diff(places, prepend=-MIN_LOSSES_IN_ROW - 1) > MIN_LOSSES_IN_ROW]


def jumps_down(losses: np.ndarray, factor: float, gap: float) -> Jump | None:
    """The same downwards. What is learnt falls below all before it at every step: so there has to be a gap, and behind
    it the loss falls no further, or far slower, and it was never there before: back from a spike is no drop."""
    places = [int(p) for p in np.flatnonzero(_leaves(-np.log(losses), math.log(gap)))]
    places = [p for p in places if _has_settled(losses, p) or _is_one_step(losses, p)]
    jumps = (_jump(losses, p, -1) for p in places[::-1])
    return next((jump for jump in jumps if jump.after <= _lowest_before(losses, jump.first) / factor), None)


def _lowest_before(losses: np.ndarray, place: int) -> float:
    """The lowest middle of eight losses in a row."""
    return float(np.median(sliding_window_view(losses[:place], MIN_LOSSES_IN_ROW), axis=1).min())


def _has_settled(losses: np.ndarray, place: int) -> bool:
    first, second = losses[place : place + MIN_LOSSES_IN_ROW].reshape(2, -1)
    return bool(np.median(first) < SETTLING_RATIO * np.median(second))


def _is_one_step(losses: np.ndarray, place: int) -> bool:
    """Whether one step of a curve that had learnt made several times as much as each of those behind it: the task that
    is easier since is learnt on."""
    logs = np.log(losses)
    before = float(np.median(logs[place - MIN_LOSSES_IN_ROW : place]))
    first, second = np.median(logs[place : place + MIN_LOSSES_IN_ROW].reshape(2, -1), axis=1)
    is_learnt = before < float(np.median(logs[:MIN_LOSSES_IN_ROW])) + math.log(LEARNT_SHARE)
    fall, each = before - float(logs[place : place + 2].max()), 2 * float(first - second) / MIN_LOSSES_IN_ROW
    return is_learnt and fall > STEPS_IN_ONE * each


def _leaves(numbers: np.ndarray, gap: float) -> np.ndarray:
    """Whether the next ones from each place on are all above those before it, by more than chance allows."""
    hits = np.zeros(len(numbers), bool)
    for reach in (MIN_LOSSES_BEFORE, BEFORE):
        count = len(numbers) - reach - MIN_LOSSES_IN_ROW + 1
        if count < 1:
            continue
        places = np.arange(reach, reach + count)
        highest = sliding_window_view(numbers, reach)[:count].max(1)
        lowest = sliding_window_view(numbers, MIN_LOSSES_IN_ROW)[reach:].min(1)
        # That 8 of equal draws are the highest of all has the chance of one choice; a look is at `reach` places.
        chance = reach / math.comb(reach + MIN_LOSSES_IN_ROW, MIN_LOSSES_IN_ROW)
        is_fair = [chance <= allowed(TEST, look) / (2 * SHAPES) for look in range(len(numbers) // reach + 1)]
        hits[places] |= (lowest > highest + gap) & np.array(is_fair)[places // reach]
    return hits


def _jump(losses: np.ndarray, place: int, sign: int) -> Jump:
    """A jump ends where the middle of 8 losses is back among those of before."""
    edge = (sign * losses[place - MIN_LOSSES_BEFORE : place]).max()
    middles = np.median(sliding_window_view(sign * losses[place:], MIN_LOSSES_IN_ROW), axis=1)
    back = np.flatnonzero(middles <= edge)
    ended_at = place + int(back[0]) if len(back) else None
    after = losses[place : min(place + BEFORE, len(losses) if ended_at is None else ended_at)]
    return Jump(place, ended_at, float(np.median(losses[place - MIN_LOSSES_IN_ROW : place])), float(np.median(after)))


def rises(losses: np.ndarray, factor: float) -> Rise | None:
    """The last block against the lowest one before it, by the sum of ranks."""
    width = len(losses) // BLOCKS
    if width < MIN_BLOCK:
        return None
    blocks = losses[len(losses) - width * BLOCKS :].reshape(BLOCKS, width)
    middles = np.median(blocks, axis=1)
    lowest = int(middles[:-1].argmin())
    if not middles[-1] > factor * middles[lowest]:
        return None
    limit = bound(TEST, len(losses) // (BLOCKS * MIN_BLOCK), SHAPES * BLOCKS)
    if not rank_sum(blocks[lowest], blocks[-1]) > limit:
        return None
    return Rise(len(losses) - width * (BLOCKS - lowest) + width // 2, float(middles[lowest]), float(middles[-1]))


def rank_sum(low: np.ndarray, high: np.ndarray) -> float:
    """By how many standard errors the ranks of the second are above those of the first (Mann and Whitney)."""
    one, two = len(low), len(high)
    order = np.sort(low)  # ties count a half: a log may have few digits
    above = (np.searchsorted(order, high, "left").sum() + np.searchsorted(order, high, "right").sum()) / 2
    return float((above - one * two / 2) / math.sqrt(one * two * (one + two + 1) / 12))


def is_above(losses: np.ndarray, place: int) -> bool:
    """Whether those from a place on are above those before it, by more than chance explains."""
    return rank_sum(losses[:place], losses[place:]) > bound(TEST, len(losses) // MIN_LOSSES_BEFORE, SHAPES)


def oscillates(losses: np.ndarray, factor: float) -> Oscillation | None:
    """Swings of means over blocks, each by more than a factor, and than the scatter of neighbours explains."""
    logs = np.log(losses)
    found: list[Oscillation] = []
    for width in WAVES:
        count = len(logs) // width
        if count < 2 * SWINGS:
            break
        points = logs[len(logs) - count * width :].reshape(count, width).mean(1)
        scatter = float(np.std(np.diff(logs))) / math.sqrt(2)
        sure = bound(TEST, len(logs) // MIN_LOSSES_BEFORE, SHAPES * len(WAVES) * count)
        turns = _turns(points, max(math.log(factor), sure * scatter * math.sqrt(2 / width)))
        if len(turns) > 1 and points[turns[0]] > points[turns[1]]:
            turns = turns[1:]  # the first fall is what was learnt
        if len(turns) > SWINGS:
            start = len(logs) - count * width
            sizes = np.abs(np.diff(points[turns]))
            places = [start + turn * width for turn in (turns[0], turns[-1])]
            found.append(Oscillation(places[0], places[1] + width - 1, len(turns) - 1, float(np.exp(np.median(sizes)))))
    return max(found, key=lambda each: each.swings, default=None)


def _turns(points: np.ndarray, size: float) -> list[int]:
    """The places between which a curve rises or falls by more than `size`, in turn."""
    turns, low, high = [0], 0, 0
    going = 0
    for place, point in enumerate(points):
        low = place if point < points[low] else low
        high = place if point > points[high] else high
        if going >= 0 and points[high] - point > size:
            turns, going = ([*turns[:-1], high] if not going else [*turns, high]), -1
            low = place
        elif going <= 0 and point - points[low] > size:
            turns, going = ([*turns[:-1], low] if not going else [*turns, low]), 1
            high = place
    last = high if going > 0 else low
    return [*turns, last] if going else turns
