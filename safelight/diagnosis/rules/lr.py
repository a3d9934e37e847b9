"""Learning rates: too high, too low, 0, ended too early, or jumping."""

from __future__ import annotations

from functools import partial

import numpy as np

from safelight import checks
from safelight.diagnosis.definitions import SAFE_RATE_SHARE
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.rate_shapes import begins_anew
from safelight.diagnosis.rule import Detection, error_rule, first_of, on_count, warning_rule
from safelight.diagnosis.rules.learning import broken_weights, short_updates, stays_by_short_updates
from safelight.diagnosis.run_history import RunHistory, episode_of
from safelight.diagnosis.spacing import LogNeed
from safelight.vocabulary import LEARNING_RATE, SKILL_RAW, UPDATE_RATIO
from safelight.words import round_rate

OVERSHOOT_RATIO = 1.25  # error after the update over that before, on its own batch; healthy runs have 0.86 to 1.05
RUINOUS_RATIO = 1e3  # times the error before
# An update gains too little above the first ratio, if one a hundred times as long is below the second
NO_GAIN_RATIO, LONG_GAIN_RATIO = 0.98, 0.999
LONGER_UPDATES = ("10", "100", "10000", "1000000")
# Times more gain by a hundredfold update than by a tenfold one: the loss still falls in a straight line
STRAIGHT_GAIN_FACTOR = 5.0
UNLEARNT_ERROR_SHARE = 0.6  # error over that of the zero predictor: above it, there is something left to learn
FIRST_STEPS = 32
OVERSHOT_ERROR_FACTOR = 1.5  # times the zero predictor's error: 1.04 at most in healthy runs
MIN_OVERSHOOTS = 3
# Times the highest rate that is stable in the preflight without a warm-up: more is too high with any warm-up
MAX_RATE_OVER_STABLE = 9.9
PEAK_RATE_SHARE = 0.9  # of the highest rate: a warm-up was over, or never there
JUMP_FACTOR, ENDED_RATE_SHARE = 5.0, 1e-3
LONG_STEPS = 50
MIN_ZERO_RATES, MIN_RATES = 5, 12  # readings of a rate
USUAL_RATE = 1e-5  # of Adam, in published recipes: 1e-5 to 2e-3
MOVED_ENOUGH = 0.5  # of the error, by all updates of a run together


def raises_error(run: RunHistory) -> Detection | None:
    """The update raises the error on the samples it was made from, and a tenth of it would not."""
    steps, ratio_full = run.series(checks.LINE_SEARCH_RATIO["1"])
    ratio_tenth, rates = run.at(checks.LINE_SEARCH_RATIO["0.1"], steps), run.at(checks.LINE_SEARCH_RATE, steps)
    searched = np.isin(steps, run.steps(checks.LINE_SEARCH_RATIO["0.1"]))
    bad = searched & ~(ratio_full <= OVERSHOOT_RATIO) & ~(ratio_full < 1.1 * np.minimum(ratio_tenth, 1.0))
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
        # The error grows with the square of the rate; that of the first overshoot comes from the update before it.
        found.append(SAFE_RATE_SHARE * _rate_at(run, int(overshot[0]) - 1) / float(np.sqrt(ratios[0])))
    return [rate for rate in found if rate > 0]


def _lower(run: RunHistory) -> Fix | None:
    """The advice to lower the rate to the one that was stable in the preflight, if one was tried. None if no rate is
    known: then the rule's own fix holds."""
    stable_rate = run.latest(checks.TRIAL_STABLE_RATE)
    rates = [stable_rate] if stable_rate > 0 else _stable_rates(run)
    if not rates:
        return None
    rate = round_rate(min(rates))
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


def _overshoots(run: RunHistory) -> tuple[np.ndarray, np.ndarray]:
    """(steps, times the zero predictor's error) where the network is, in the first steps, far worse than one that
    always predicts 0, and than it was at first. Paired: both errors are of the same samples and noise."""
    steps, errors = run.series(checks.LOSS_MSE)
    zeros = run.numbers(checks.LOSS_ZERO_MSE)
    if not len(steps) or len(zeros) != len(steps):
        return np.zeros(0, np.int64), np.zeros(0)
    ratios = errors / np.maximum(zeros, 1e-12)
    limit = OVERSHOT_ERROR_FACTOR * max(1.0, float(ratios[0]))
    far = (steps - steps[0] <= FIRST_STEPS) & (ratios > limit)  # NaN has other names
    return steps[far], ratios[far]


def _is_without_warmup(run: RunHistory, first: int, last: int) -> bool:
    """Whether the rate was at its peak then, and is still near it later, when the error is normal again."""
    steps, rates = run.series(LEARNING_RATE)
    high = PEAK_RATE_SHARE * float(rates.max(initial=0.0))
    return _rate_at(run, first) >= high > 0 and bool((rates[steps > last] > high / 2).any())


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
            "and never after: the rate is high before the optimizer has estimated the gradients."
            if at_first
            else "after a good start: updates are too large."
        ),
        run.evidence_of({checks.LOSS_MSE: "below that of zero", checks.LOSS_ZERO_MSE: None}, worst),
        ("a hard batch: both errors are of the same samples with the same noise",),
        confidence=0.99,
        fix=None if at_first else _lower(run),
    )


too_high = first_of(raises_error, partial(overshot, at_first=False), fails_trial, broken_weights)


def too_low(run: RunHistory) -> Detection | None:
    steps, ratio_full = run.series(checks.LINE_SEARCH_RATIO["1"])
    ratio_tenfold, ratio_hundredfold = (run.at(checks.LINE_SEARCH_RATIO[length], steps) for length in ("10", "100"))
    rates, starts, zeros = (
        run.at(check, steps) for check in (checks.LINE_SEARCH_RATE, checks.LINE_SEARCH_START, checks.LINE_SEARCH_ZERO)
    )
    if len(ratio_full) < 4 or steps[-1] - steps[0] < 30:
        return None
    risen = np.concatenate([[True], rates[1:] > 1.2 * np.maximum.accumulate(rates)[:-1]])
    straight = (1 - ratio_hundredfold) > STRAIGHT_GAIN_FACTOR * (1 - ratio_tenfold)
    lengths = np.full(len(steps), 100)
    for length in ("10000", "1000000"):  # a rate so low that even a hundredfold update gains nothing
        farther = run.at(checks.LINE_SEARCH_RATIO[length], steps)
        lower = (ratio_hundredfold > LONG_GAIN_RATIO) & (ratio_hundredfold < 1.001) & (farther < LONG_GAIN_RATIO)
        ratio_hundredfold, straight = np.where(lower, farther, ratio_hundredfold), straight | lower
        lengths = np.where(lower, int(length), lengths)
    hit = (
        (ratio_full > NO_GAIN_RATIO)
        & (ratio_hundredfold < LONG_GAIN_RATIO)
        & (ratio_tenfold < 1.001)
        & straight
        & (starts > UNLEARNT_ERROR_SHARE * zeros)
        & ~risen
    )
    hit &= steps - steps[0] >= 30
    if hit.sum() < 2:
        return None
    last = int(np.flatnonzero(hit)[-1])
    rate = float(rates[last])
    return Detection(
        int(steps[np.flatnonzero(hit)[0]]),
        f"Updates gain {1 - float(ratio_full[last]):.2g} of the error each; {int(lengths[last]):,} times as long they "
        f"would gain {1 - float(ratio_hundredfold[last]):.2g}. The training is far too slow.",
        (
            *run.evidence_of(
                {checks.LINE_SEARCH_RATIO["1"]: "0.9 to 1", checks.LINE_SEARCH_RATIO["100"]: "far above 1"}
            ),
            Evidence(LEARNING_RATE.name, rate, (int(steps[-1]), int(steps[-1]))),
        ),
        ("a run that has converged: longer steps would not help it", "warm-up: the rate no longer rises"),
        confidence=0.99,
        fix=_raise(float(rates.max()) * _raised(run, int(steps[last]))),  # the setting is that of the highest rate
        severity="info" if _is_a_choice(run, rate, 1 - float(ratio_full[last])) else None,
    )


def _is_a_choice(run: RunHistory, rate: float, gain: float) -> bool:
    """In a user's loop a usual rate is slow on purpose, unless the run is far too short for it."""
    if run.config is not None:
        return False
    planned = run.planned_steps
    if planned is not None and planned * gain < MOVED_ENOUGH:
        return False
    return rate >= USUAL_RATE and run.latest(checks.OPTIMIZER_ADAPTIVE, 0.0) == 1


def _raised(run: RunHistory, step: int) -> float:
    """How many times as high the rate should be: a tenth of the length that gains most, which is that of one update on
    its own samples; at least ten."""
    at = np.array([step])
    errors = {float(length): run.at(checks.LINE_SEARCH_RATIO[length], at)[0] for length in LONGER_UPDATES}
    return max(10.0, min(errors, key=lambda length: errors[length] if errors[length] < LONG_GAIN_RATIO else 1.0) / 10)


def _raise(rate: float) -> Fix:
    rate = round_rate(rate)
    return Fix(f"Raise the learning rate to about {rate:g}.", {"optimizer.lr": rate}, "unsafe")


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


def zero(run: RunHistory) -> Detection | None:
    steps, rates = run.series(LEARNING_RATE)
    zeros = episode_of(steps, rates == 0, MIN_ZERO_RATES)
    if zeros is None or zeros.ended_at is not None:
        return None
    if int(steps[-1]) - zeros.first >= LONG_STEPS and zeros.looks < len(rates):
        return None  # a schedule that has ended is another cause
    return Detection(
        zeros.first,
        f"The learning rate is 0 since step {zeros.first:,}: nothing is learnt.",
        (Evidence(LEARNING_RATE.name, 0.0, (zeros.first, zeros.last), "above 0"),),
    )


def ended_early(run: RunHistory) -> Detection | None:
    steps, rates = run.series(LEARNING_RATE)
    if len(rates) < LONG_STEPS or not rates.max() > 0:
        return None
    low = episode_of(steps, rates < ENDED_RATE_SHARE * np.quantile(rates, 0.98))  # not of a single jump
    if low is None or low.ended_at is not None or low.looks == len(rates):
        return None
    length, whole = (int(steps[-1]) - first + 1 for first in (low.first, int(steps[0])))  # a log may leave out steps
    if length < max(20, 0.15 * whole):
        return None
    return Detection(
        low.first,
        f"The learning rate fell below a thousandth of its highest at step {low.first:,}, and the training continued "
        f"for {length:,} steps: its schedule was stepped too often, or made for a shorter run.",
        (Evidence(LEARNING_RATE.name, float(rates[-1]), (low.first, low.last)),),
        ("a cosine that ends with the run: it spends 2 % of its length so low",),
    )


def jump(run: RunHistory) -> Detection | None:
    """Restarts return to an earlier rate; this is higher than ever before."""
    steps, rates = run.series(LEARNING_RATE)
    if len(rates) < MIN_RATES:
        return None
    highest = np.maximum.accumulate(rates)
    # After longer gaps it may be a warm-up.
    risen = (rates[1:] > JUMP_FACTOR * highest[:-1]) & (highest[:-1] > 0) & (np.diff(steps) < LONG_STEPS)
    jumps = np.flatnonzero(risen & (np.arange(1, len(rates)) >= 10))
    if not len(jumps):
        return None
    place = int(jumps[-1]) + 1
    back, apart = np.flatnonzero(rates[place:] <= highest[place - 1]), int(steps[place] - steps[place - 1])
    return Detection(
        int(steps[place]),
        f"At step {int(steps[place]):,} the learning rate went from {rates[place - 1]:.2g} to {rates[place]:.2g} in "
        + ("one step." if apart == 1 else f"{apart} steps."),
        (Evidence(LEARNING_RATE.name, float(rates[place]), (int(steps[place]), int(steps[place]))),),
        ("warm-up and restarts: they rise by less, or no higher than before",),
        ended_at=int(steps[place + back[0]]) if len(back) else None,
    )


def anew(run: RunHistory) -> Detection | None:
    """Exact but for the digits of a log: the rates are those of the beginning, once more."""
    steps, rates = run.series(LEARNING_RATE)
    place = begins_anew(steps, rates)
    if place is None:
        return None
    at, before = int(steps[place]), float(rates[place - 1])
    return Detection(
        at,
        f"At step {at:,} the learning rate began again as at the first step: it went from {before:.2g} to "
        f"{rates[place]:.2g}, in the middle of its schedule.",
        (Evidence(LEARNING_RATE.name, float(rates[place]), (at, at), f"about {before:.2g}"),),
        ("restarts that are meant: they come when the rate is at its lowest, and again",),
        confidence=0.99,
    )


CAUSES_BEFORE_LR = (
    "scale. loss.sign loss.shape optimizer.maximize optimizer.no-zero optimizer.not-its target. model.init "
    "data.nonfinite precision. optimizer.weight-decay data.shifted model.dead mode. model.bounded"
)

# Not those of its curve, which are symptoms.
LOSS_CAUSES = "loss.nonfinite loss.detached loss.weight loss.not-of loss.diverged"

RULES = (
    error_rule(
        "LRA001",
        "lr.too-high",
        "A learning rate that is too high",
        what="The update of a step raises the error on its own batch; or the first steps bring the error far above "
        "that of a network that predicts 0, or updates that the preflight tries do.",
        why="The loss fluctuates or rises; weights grow until they overflow.",
        similar="A bad batch has a large loss before the update too. With a wrong sign every length is worse.",
        limits="Rates that are only unstable later: see `loss.diverged`.",
        fix="Lower optimizer.lr, or lengthen optimizer.warmup.",
        needs=((checks.LINE_SEARCH_RATIO["1"], checks.LOSS_MSE, checks.TRIAL_RATE, SKILL_RAW),),
        detect=too_high,
        explained_by=f"{CAUSES_BEFORE_LR} lr.jump accumulation. forward.",
    ),
    warning_rule(
        "LRA002",
        "lr.too-low",
        "A learning rate that is too low",
        what="Updates gain nearly nothing where a hundred times longer ones would gain much, after the warm-up.",
        why="The run would take a hundred times as long.",
        similar="In a run that has converged longer updates do not help. A fine-tuning rate is low on purpose: there "
        "is little left to gain.",
        limits="Rates that are ten times too low. By the loss alone: networks that do not predict the noise.",
        fix="Raise optimizer.lr.",
        needs=((checks.LINE_SEARCH_RATIO["1"], SKILL_RAW, UPDATE_RATIO),),
        detect=first_of(too_low, short_updates, stays_by_short_updates),
        explained_by=f"{CAUSES_BEFORE_LR} forward. clipping. model. ema. lr.zero lr.ended optimizer. {LOSS_CAUSES}",
    ),
    error_rule(
        "LRA003",
        "lr.zero",
        "A learning rate of 0",
        what="The learning rate is exactly 0.",
        why="Nothing is learnt.",
        similar="The first step of a warm-up may be 0, and only that one.",
        fix="Check the scheduler: its warm-up, its end, and whether it is stepped.",
        needs=(LEARNING_RATE,),
        detect=zero,
        logs=LogNeed(MIN_ZERO_RATES, of=LEARNING_RATE),
    ),
    warning_rule(
        "LRA004",
        "lr.ended-early",
        "A schedule that ends before the run",
        what="The learning rate has been almost 0 for a long time while the training continues.",
        why="The rest of the run is wasted.",
        similar="Every decay ends low; this one ended long ago.",
        limits="Decays that end a little early.",
        fix="Step the scheduler once per update, not per micro-batch or process, and give it the number of updates.",
        needs=(LEARNING_RATE,),
        detect=ended_early,
        logs=LogNeed(LONG_STEPS, of=LEARNING_RATE),
    ),
    warning_rule(
        "LRA007",
        "lr.every-micro-batch",
        "A schedule that is stepped with every micro-batch",
        what="The learning rate changes between the micro-batches of one update.",
        why="With k micro-batches a schedule that was made for updates ends after a k-th of the run.",
        similar="A schedule that ended before the run shows only at its end.",
        limits="A schedule that was made for micro-batches on purpose ends with the run, and can be ignored.",
        fix="scheduler.step() after optimizer.step() only.",
        needs=(checks.RATE_BETWEEN,),
        detect=on_count(
            checks.RATE_BETWEEN,
            3,
            "Before {} updates the learning rate changed between micro-batches, where no weight moves: its schedule "
            "runs faster than the updates.",
        ),
    ),
    warning_rule(
        "LRA006",
        "lr.no-warmup",
        "A rate that is high from the first step",
        what="One of the first updates raises the error on its own batch several times; later ones do not.",
        why="The damage of the first steps may be permanent: dead units, labels that are ignored.",
        similar="A rate that is too high for the run raises the error at later steps too.",
        fix="Lengthen optimizer.warmup.",
        needs=((checks.LINE_SEARCH_RATIO["1"], checks.LOSS_MSE),),
        detect=no_warmup,
        explained_by=f"{CAUSES_BEFORE_LR} lr.jump accumulation. forward.",
    ),
    warning_rule(
        "LRA005",
        "lr.jump",
        "A learning rate that jumps",
        what="From one step to the next the learning rate rises to several times what it ever was; or it begins again "
        "as at the first step, in the middle of its schedule.",
        why="The optimizer's moments were averaged for another rate: updates are too large. A schedule that begins "
        "again ends too late.",
        similar="Restarts return to where the rate was before. Those that are meant come when the rate is at its "
        "lowest.",
        limits="Jumps within the first ten steps.",
        fix="After a resume: is the scheduler's state loaded? Otherwise check what sets the rate.",
        needs=(LEARNING_RATE,),
        detect=first_of(jump, anew),
        logs=LogNeed(MIN_RATES, "known steps", LEARNING_RATE),
    ),
)
