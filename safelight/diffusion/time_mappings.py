"""What a loop's time says of the noise: named functions between the two, and which of them a loop uses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from safelight.diffusion.process import TimeFunction, precise, shifted

SHARE_TOLERANCE = 2e-3  # of a share of noise: fp32 has 1e-6, bf16 5e-4 on 64 pixels
MIN_SAMPLES = 16  # samples that have to agree
ROUND = 1e-3  # how near a factor has to be to a round number to be it
TINY = 1e-12


@dataclass(frozen=True, slots=True)
class TimeMapping:
    """The share of noise s / (a + s) at a time, and the time at a share. Every process has it, whatever a and s are."""

    words: str
    share: TimeFunction
    time: TimeFunction
    rises: bool = True
    """Whether a later time has more noise."""

    def of(self, t: np.ndarray) -> np.ndarray:
        return self.share(torch.as_tensor(t, dtype=torch.float64)).numpy()

    def at(self, share: np.ndarray) -> np.ndarray:
        return self.time(torch.as_tensor(share, dtype=torch.float64)).numpy()


def _factor(factor: float) -> str:
    return "" if factor == 1 else f"{factor:.6g}·"


def linear(factor: float = 1.0) -> TimeMapping:
    """Flow matching: t = factor · s."""
    return TimeMapping(f"t = {_factor(factor)}s", lambda t: (t / factor).clamp(0, 1), lambda share: factor * share)


def falling(factor: float = 1.0) -> TimeMapping:
    """Flow matching from noise to image: t = factor · (1 − s)."""
    return TimeMapping(
        f"t = {_factor(factor)}(1 − s)",
        lambda t: (1 - t / factor).clamp(0, 1),
        lambda share: factor * (1 - share),
        rises=False,
    )


def before_shift(shift: float, factor: float = 1.0) -> TimeMapping:
    """The time of a flow before it was moved to more noise."""
    return TimeMapping(
        f"t before a shift of {shift:.3g}",
        lambda t: shifted((t / factor).clamp(0, 1), shift),
        lambda share: factor * shifted(share, 1 / shift),
    )


def logarithm(factor: float, words: str) -> TimeMapping:
    """t = factor · log(σ), with σ = s / a."""
    return TimeMapping(
        words, lambda t: torch.sigmoid(t / factor), lambda share: factor * torch.logit(share), factor > 0
    )


def angle(factor: float = 1.0) -> TimeMapping:
    """A quarter of a circle from image to noise: t = factor · 2/π · arctan(s / a)."""
    words = f"t = {_factor(factor)}2/π·arctan(s / a)"
    quarter = math.pi / 2

    def share(t: Tensor) -> Tensor:
        turn = (t / factor).clamp(0, 1) * quarter
        return turn.sin() / (turn.sin() + turn.cos())

    return TimeMapping(words, share, lambda share: factor * torch.atan2(share, 1 - share) / quarter)


def entries(alphas_cumprod: Tensor, factor: float = 1.0, words: str = "whole timesteps") -> TimeMapping:
    """Places in a table of a process that keeps variance; `factor`: of a time that is 1 at its end."""
    noise = precise((1 - alphas_cumprod).sqrt())
    shares = noise / (noise + precise(alphas_cumprod.sqrt()))
    last = len(shares) - 1

    def share(t: Tensor) -> Tensor:
        return shares.to(t.device)[(precise(t) * factor + 1e-6).floor().long().clamp(0, last)]

    def time(wanted: Tensor) -> Tensor:
        place = torch.searchsorted(shares.to(wanted.device), precise(wanted).contiguous())
        place, before = place.clamp(max=last), (place - 1).clamp(0, last)
        nearer = (shares.to(wanted.device)[before] - wanted).abs() < (shares.to(wanted.device)[place] - wanted).abs()
        return torch.where(nearer, before, place).to(wanted) / factor

    return TimeMapping(words, share, time)


SIGMA = TimeMapping("t = sigma", lambda t: t / (1 + t), lambda share: share / (1 - share).clamp(min=TINY))
LOG_SIGMA = logarithm(1.0, "t = log(sigma)")
QUARTER_LOG_SIGMA = logarithm(0.25, "t = log(sigma) / 4")
LOG_SNR = logarithm(-2.0, "t = log-SNR")
OF_FLOW = (linear(), linear(1000.0))
OF_SIGMA = (SIGMA, QUARTER_LOG_SIGMA, LOG_SIGMA)
USUAL_CLOCKS = (*OF_FLOW, *OF_SIGMA, LOG_SNR, falling(), falling(1000.0), angle(), angle(1000.0))


def fits(clock: TimeMapping, t: np.ndarray, share: np.ndarray, *, rounded: bool = False) -> bool:
    """Whether this is the clock of all these samples. `rounded`: whole times may be counted from 0 or 1."""
    if len(t) < MIN_SAMPLES or not np.isfinite(t).all():
        return False
    with np.errstate(all="ignore"):
        errors = np.abs(clock.of(t) - share)
        if rounded:
            errors = np.minimum(errors, np.abs(clock.of(t + 1) - share))
    return bool(np.isfinite(errors).all()) and float(np.quantile(errors, 0.98)) <= SHARE_TOLERANCE


def find(t: np.ndarray, share: np.ndarray, candidates: Iterable[TimeMapping] = USUAL_CLOCKS) -> TimeMapping | None:
    """The one clock that fits, of those with a name before others; where several do, or none, it is not known."""
    if len(t) < MIN_SAMPLES or np.ptp(t) == 0 or not np.isfinite(t).all():
        return None
    is_whole = bool(np.array_equal(t, np.round(t))) and t.max() > 1
    for some in (candidates, _fitted(t, share)):
        if found := [clock for clock in some if fits(clock, t, share, rounded=is_whole)]:
            different = any(np.abs(one.of(t) - found[0].of(t)).max() > SHARE_TOLERANCE / 4 for one in found)
            return None if different else found[0]
    return None


MIN_DENSE_SAMPLES = 256  # samples from which a clock without a name can be read off


def measured(t: np.ndarray, share: np.ndarray) -> TimeMapping | None:
    """A clock without a name, between the samples themselves: where every other sample is found from the ones beside
    it, and the noise only rises or only falls with the time."""
    if len(t) < MIN_DENSE_SAMPLES or np.ptp(t) == 0 or not np.isfinite(t).all():
        return None
    times, first = np.unique(t, return_index=True)
    shares = share[first]
    rises = bool(shares[-1] > shares[0])
    order = shares if rises else -shares
    if (
        len(times) < MIN_SAMPLES
        or np.abs(share - np.interp(t, times, shares)).max() > SHARE_TOLERANCE
        or (np.diff(order) < -SHARE_TOLERANCE).any()
    ):
        return None
    left_out = np.interp(times[1:-1:2], times[::2], shares[::2])
    if float(np.quantile(np.abs(left_out - shares[1:-1:2]), 0.98)) > SHARE_TOLERANCE:
        return None
    at, of = (times, shares) if rises else (times[::-1], shares[::-1])
    of = np.maximum.accumulate(of)
    return TimeMapping("t that follows the noise level", _between(times, shares), _between(of, at), rises)


def _between(x: np.ndarray, y: np.ndarray) -> TimeFunction:
    def curve(values: Tensor) -> Tensor:
        found = np.interp(values.detach().double().cpu().numpy(), x, y)
        return torch.as_tensor(found, dtype=torch.float64, device=values.device)

    return curve


def _fitted(t: np.ndarray, share: np.ndarray) -> list[TimeMapping]:
    """Clocks with a factor or a shift of their own, from what the samples have in the middle."""
    inside = (share > 0.01) & (share < 0.99) & (t > 0)
    if inside.sum() < MIN_SAMPLES:
        return []
    t, share = t[inside], share[inside]
    factors = (float(np.median(t / share)), float(np.median(t / (1 - share))))
    found = [linear(_rounded(factors[0])), falling(_rounded(factors[1]))]
    for factor in (1.0, 1000.0):
        u = t / factor
        if (u < 1).all():
            shift = _rounded(float(np.median(share * (1 - u) / (u * (1 - share)))))
            found.append(before_shift(shift, factor))
    return found


def _rounded(number: float) -> float:
    """To the round number beside it, which a person wrote."""
    if not math.isfinite(number) or number <= 0:
        return 1.0
    digits = 1 - math.floor(math.log10(number))
    near = round(number, digits)
    return near if near > 0 and abs(near / number - 1) < ROUND else number


def by_range(t: np.ndarray, clocks: Sequence[TimeMapping]) -> TimeMapping | None:
    """The clock, of those that a process may have, whose times these can be, if nothing but times is known."""
    if len(t) < MIN_SAMPLES or not np.isfinite(t).all():
        return None
    lowest, highest = float(t.min()), float(t.max())
    if SIGMA in clocks:
        if lowest >= 0:
            return SIGMA
        return QUARTER_LOG_SIGMA if lowest > -1.7 and highest < 1.2 else LOG_SIGMA
    if linear().words in {clock.words for clock in clocks}:
        return next(
            (clock for clock in clocks if lowest >= 0 and highest <= float(clock.at(np.ones(1))[0])), clocks[-1]
        )
    return clocks[0] if len(clocks) == 1 else None
