"""Rates that are too high, for the whole run or for its first steps."""

from __future__ import annotations

from functools import partial

import numpy as np

from safelight import checks
from safelight.diagnosis.definitions import SAFE_RATE_SHARE
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.nonfinite import first_steps
from safelight.diagnosis.rule import Detection, first_of
from safelight.diagnosis.rules.learning import broken_weights
from safelight.diagnosis.run_history import RunHistory
from safelight.vocabulary import LEARNING_RATE
from safelight.words import round_rate

OVERSHOOT_RATIO = 1.25  # error after the update over that before, on its own batch; healthy runs have 0.86 to 1.05
RUINOUS_RATIO = 1e3  # times the error before
FAR_BEYOND = 1.0  # a rate of which no optimizer makes use
USUAL_RATE, HIGH_RATE = (
    1e-4,
    1e-2,
)  # the least that is advised instead of more than the other: errors of a wreck say less
FIRST_STEPS = 32
OVERSHOT_ERROR_FACTOR = 1.5  # times the zero predictor's error: 1.04 at most in healthy runs
MIN_OVERSHOOTS = 3
# Times the highest rate that is stable in the preflight without a warm-up: more is too high with any warm-up
MAX_RATE_OVER_STABLE = 9.9
PEAK_RATE_SHARE = 0.9  # of the highest rate: a warm-up was over, or never there


def raises_error(run: RunHistory) -> Detection | None:
    """The update raises the error on the samples it was made from, and a tenth of it would not."""
    steps, ratio_full = run.series(checks.LINE_SEARCH_RATIO["1"])
    ratio_tenth, rates = run.at(checks.LINE_SEARCH_RATIO["0.1"], steps), run.at(checks.LINE_SEARCH_RATE, steps)
    searched = np.isin(steps, run.steps(checks.LINE_SEARCH_RATIO["0.1"]))
    bad = searched & ~(ratio_full <= OVERSHOOT_RATIO) & ~(ratio_full < 1.1 * np.minimum(ratio_tenth, 1.0))
    # NaN where a shorter update does no harm comes from the network, not from the length.
    bad &= ~np.isnan(ratio_full) | (run.at(checks.LINE_SEARCH_RATIO["0.3"], steps) > OVERSHOOT_RATIO)
    pairs = np.flatnonzero(bad[1:] & bad[:-1]) + 1
    # One very bad update is enough where the rate continued to rise after it.
    rising = [i for i in np.flatnonzero(bad & (ratio_full > 2 * OVERSHOOT_RATIO)) if rates[i:].max() > 1.2 * rates[i]]
    # Also if it is not finite: there may be no look after such an update.
    ruinous = np.flatnonzero(bad & ~(ratio_full < RUINOUS_RATIO))
    hits = sorted({*pairs.tolist(), *map(int, rising), *ruinous.tolist()})
    if not hits:
        return None
    first, last = int(steps[max(0, hits[0] - 1) if hits[0] in pairs else hits[0]]), hits[-1]
    ended_at = int(steps[last + 1]) if last + 1 < len(steps) and not rising else None
    at, rate = int(steps[last]), float(rates[last])
    better = _stable_length(run, at)
    return Detection(
        first,
        f"An update raises the error on its own batch {float(ratio_full[last]):.3g} times; "
        + ("no shorter one would lower it." if better is None else f"one of {better:g} times its length would not."),
        (
            *run.evidence_of(
                {checks.LINE_SEARCH_RATIO["1"]: "below 1.05", checks.LINE_SEARCH_RATIO["0.1"]: "below 1"}, at
            ),
            Evidence(LEARNING_RATE.name, rate, (at, at)),
        ),
        ("a hard batch: error before and after are those of the same samples with the same noise",),
        confidence=0.99,
        ended_at=ended_at,
        fix=_lower(run),
    )


def _stable_length(run: RunHistory, step: int) -> float | None:
    """The longest update that would have lowered the error on its own batch, over the one that was made."""
    at = np.array([step])
    usual = {length: checks.LINE_SEARCH_RATIO[length] for length in ("0.3", "0.1")}
    lengths = usual | checks.LINE_SEARCH_SHORTER  # the longest first
    return next((float(length) for length, check in lengths.items() if run.at(check, at)[0] < 1.0), None)


def _stable_rates(run: RunHistory) -> list[float]:
    """The rates that would not have overshot, one for every update that did. Two causes of one finding have one piece
    of advice: the lowest of these."""
    steps, ratio_full = run.series(checks.LINE_SEARCH_RATIO["1"])
    rates = run.at(checks.LINE_SEARCH_RATE, steps)
    found: list[float] = []
    for place in np.flatnonzero(~(ratio_full <= OVERSHOOT_RATIO)):
        length = _stable_length(run, int(steps[place]))
        found += [] if length is None else [float(rates[place]) * length]
    overshot, ratios = _overshoots(run)
    if len(overshot) >= MIN_OVERSHOOTS:
        # That of the first overshoot comes from the update before it.
        found.append(_safe_rate(_rate_at(run, int(overshot[0]) - 1), float(ratios[0])))
    return [rate for rate in found if rate > 0]


def _safe_rate(rate: float, ratio: float) -> float:
    """By the error after an update, which grows with the square of the rate; of a rate that is far too high, faster."""
    rate_by_error = SAFE_RATE_SHARE * rate / float(np.sqrt(ratio))
    return max(rate_by_error, USUAL_RATE) if rate > HIGH_RATE else rate_by_error


def _lower(run: RunHistory) -> Fix | None:
    """The advice to lower the rate to the one that was stable in the preflight, if one was tried. None if no rate is
    known: then the rule's own fix holds."""
    stable_rate = run.latest(checks.TRIAL_STABLE_RATE)
    rates = [stable_rate] if stable_rate > 0 else _stable_rates(run)
    return _lower_to(min(rates)) if rates else None


def _lower_to(rate: float) -> Fix:
    rate = round_rate(rate)
    return Fix(f"Lower the learning rate to about {rate:g}.", {"optimizer.lr": rate})


def fails_trial(run: RunHistory) -> Detection | None:
    """Tried before the first step; what happened at that rate later counts more."""
    steps, tried = run.series(checks.TRIAL_RATE)
    stable_rate, error_ratio = run.latest(checks.TRIAL_STABLE_RATE), run.latest(checks.TRIAL_ERROR)
    if not len(steps) or not (tried[-1] > MAX_RATE_OVER_STABLE * stable_rate or np.isnan(stable_rate)):
        return None
    begun, rates = run.series(LEARNING_RATE)
    reached = begun[rates >= PEAK_RATE_SHARE * tried[-1]]
    if len(reached) and begun[-1] - reached[0] > FIRST_STEPS:
        return None
    return Detection(
        int(steps[-1]),
        f"One update at the learning rate of {tried[-1]:g} brings the error to {error_ratio:.3g} times that of a "
        "network that always predicts 0"
        + (": no lower rate that was tried holds." if np.isnan(stable_rate) else f"; with {stable_rate:g} it falls."),
        run.evidence_of({checks.TRIAL_ERROR: "below 1.05", checks.TRIAL_RATE: None, checks.TRIAL_STABLE_RATE: None}),
        ("a hard batch: both errors are of the same samples with the same noise",),
        confidence=0.99,
        fix=_lower(run) or Fix("Lower optimizer.lr by far: 0.0001 to 0.001 is usual."),
    )


def _ratios(run: RunHistory) -> tuple[np.ndarray, np.ndarray]:
    """(steps, times the zero predictor's error). Paired: both errors are of the same samples and noise."""
    steps, errors = run.series(checks.LOSS_MSE)
    zeros = run.numbers(checks.LOSS_ZERO_MSE)
    if not len(steps) or len(zeros) != len(steps):
        return np.zeros(0, np.int64), np.zeros(0)
    return steps, errors / np.maximum(zeros, 1e-12)


def wrecks(run: RunHistory) -> Detection | None:
    """One of the first updates takes the error far beyond all that can be learnt from, where it stays; or, at a rate
    that is beyond all use, makes the network overflow."""
    steps, ratios = _ratios(run)
    early = np.flatnonzero((np.diff(steps) == 1) & (steps[1:] - steps[:1] <= FIRST_STEPS))
    far = ~(ratios <= RUINOUS_RATIO * np.maximum(1.0, np.minimum.accumulate(np.nan_to_num(ratios, nan=np.inf))))
    place = next((int(i) for i in early if not far[i] and far[i + 1 : i + 1 + MIN_OVERSHOOTS].all()), None)
    if place is None or len(steps) < place + 1 + MIN_OVERSHOOTS:
        return None
    step, rate, after = int(steps[place]), _rate_at(run, int(steps[place])), float(ratios[place + 1])
    overflows = np.isnan(after)
    if overflows and not (rate > FAR_BEYOND and step + 1 in first_steps(run, "pred")):
        return None  # NaN has other names
    tried = run.latest(checks.TRIAL_STABLE_RATE)
    better = tried if tried > 0 else _safe_rate(rate, np.inf if overflows else after)
    return Detection(
        step,
        f"The update of step {step:,}, at a learning rate of {rate:g}, "
        + (
            "made the network overflow: its outputs are not finite since."
            if overflows
            else f"took the error from {float(ratios[place]):.3g} to {after:.3g} times that of a network that always "
            "predicts 0."
        ),
        (
            *run.evidence_of({checks.LOSS_MSE: "below that of zero", checks.LOSS_ZERO_MSE: None}, step + 1),
            Evidence(LEARNING_RATE.name, rate, (step, step)),
        ),
        ("a bad batch: the errors of the next ones are as far beyond",),
        confidence=0.99,
        fix=_lower_to(better) if better > 0 else None,
    )


def _overshoots(run: RunHistory) -> tuple[np.ndarray, np.ndarray]:
    """(steps, times the zero predictor's error) where the network is, in the first steps, far worse than one that
    always predicts 0, and than it was at first."""
    steps, ratios = _ratios(run)
    far = (steps - steps[:1] <= FIRST_STEPS) & (ratios > _limit(ratios))  # NaN has other names
    return steps[far], ratios[far]


def _limit(ratios: np.ndarray) -> float:
    return OVERSHOT_ERROR_FACTOR * max(1.0, float(ratios[0])) if len(ratios) else np.nan


def _is_without_warmup(run: RunHistory, first: int, last: int) -> bool:
    """Whether the rate was at its peak then, and is still near it later, when the error is normal again."""
    steps, rates = run.series(LEARNING_RATE)
    high = PEAK_RATE_SHARE * float(rates.max(initial=0.0))
    is_high = _rate_at(run, first) >= high > 0 and bool((rates[steps > last] > high / 2).any())
    return is_high and _has_calmed(run)


def _has_calmed(run: RunHistory) -> bool:
    """Whether the errors that follow the first steps are normal."""
    steps, ratios = _ratios(run)
    later = ratios[steps - steps[:1] > FIRST_STEPS][:FIRST_STEPS]
    return not len(later) or bool(np.median(later) <= _limit(ratios))


def overshot(run: RunHistory, at_first: bool) -> Detection | None:
    """`at_first`: only where the missing warm-up is the cause and not the rate of the whole run; else the reverse."""
    steps, ratios = _overshoots(run)
    if len(steps) < MIN_OVERSHOOTS or _is_without_warmup(run, int(steps[0]), int(steps[-1])) != at_first:
        return None
    worst = int(steps[ratios.argmax()])
    return Detection(
        int(steps[0]),
        f"At {len(steps)} of the first steps the error was up to {float(ratios.max()):.3g} times that of a network "
        "that always predicts 0, "
        + (
            "and not after them: the rate is high before the optimizer has estimated the gradients."
            if at_first
            else "after a good start: updates are too large."
        ),
        run.evidence_of({checks.LOSS_MSE: "below that of zero", checks.LOSS_ZERO_MSE: None}, worst),
        ("a hard batch: both errors are of the same samples with the same noise",),
        confidence=0.99,
        fix=None if at_first else _lower(run),
    )


too_high = first_of(wrecks, raises_error, partial(overshot, at_first=False), fails_trial, broken_weights)


def no_warmup(run: RunHistory) -> Detection | None:
    """One of the very first updates raises the error several times, and later ones do not."""
    if too_high(run) is not None:
        return None
    steps, ratio_full = run.series(checks.LINE_SEARCH_RATIO["1"])
    bad = np.flatnonzero((ratio_full > 2 * OVERSHOOT_RATIO) & (steps - steps[:1] <= 16))
    if not len(bad):
        return overshot(run, at_first=True)
    step, has_later = int(steps[bad[0]]), bool((steps > steps[bad[-1]]).any())
    return Detection(
        step,
        f"One of the first updates, at step {step:,}, raised the error on its own batch "
        f"{float(ratio_full[bad[0]]):.3g} times: the rate is high before the optimizer has estimated the gradients.",
        run.evidence_of({checks.LINE_SEARCH_RATIO["1"]: "below 1.05", checks.LINE_SEARCH_RATE: None}, step),
        ("a rate that is too high for the whole run: later updates are healthy",) if has_later else (),
        confidence=0.99,
        fix=None if has_later else Fix("Lengthen optimizer.warmup; if that is not enough, lower optimizer.lr."),
    )


def _rate_at(run: RunHistory, step: int) -> float:
    steps, rates = run.series(LEARNING_RATE)
    return float(rates[min(int(np.searchsorted(steps, step)), len(rates) - 1)]) if len(rates) else 0.0
