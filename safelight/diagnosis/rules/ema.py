"""EMAs that are too long for the run, stand still, or average something else."""

from __future__ import annotations

import numpy as np

from safelight import checks
from safelight.config.check import WARNED_INITIAL_SHARE, initial_share
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.rule import CONFIG, AtLeast, Detection, error_rule, first_of, on_episode, warning_rule
from safelight.diagnosis.run_history import Episode, RunHistory, episode_of
from safelight.vocabulary import EMA_DECAY, EMA_GAIN, FIXED_SET_LOSS_EMA, FIXED_SET_LOSS_RAW, REFUSED

LOOKS = 3
ROUGH_WAY_SHARE = 0.3  # share of the way of an EMA
SPARSE_UPDATES = 24  # updates: EMAs that are updated rarely are updated at every 10th
SAME_SAMPLES_DISTANCE, OTHER_WEIGHTS_DISTANCE = 1e-5, 1e-3  # between samples; between weights, over their length
HOPELESS_INITIAL_SHARE = 0.5  # more than half of what is sampled are initial weights
NEAR_END, CERTAIN, LAG = 0.95, 4.0, 0.05  # of the planned steps; standard errors; of the loss
HALFWAY = 0.5  # of the planned steps
MIN_COSINE = 0.5  # cosine; two new networks have 0.01, an EMA at its start 1, after a resume 0.9 and more
MIN_STEPS = 60
MANY_STEPS = 20_000  # until 1 % of the initial weights is left: said at once, as few scripts train for so long
FEW_STILL, LATE_STILL = 8, 1000  # updates without a move: an EMA that begins late may have as many
COPY, FORGETFUL, GONE = 1e-3, 0.5, 0.1  # decays: of a copy, of no average; the square that leaves nothing
APART, STEADY = 8, 1.1  # updates between looks; between decays, where any warm-up has grown by more
MAX_INITIAL_SHARE = 0.9  # the share of initial weights that is too much for any run of that length


def too_long(run: RunHistory) -> Detection | None:
    """By the settings, and by what the measured decays leave of the initial weights."""
    if run.config is not None and (share := initial_share(run.config)) > WARNED_INITIAL_SHARE:
        decay, planned = run.config.ema.decay, run.config.train.steps
        return Detection(
            0,
            f"An EMA with decay {decay} over {planned:,} steps still holds {share:.0%} of the random initial weights: "
            "its samples show them, however good the weights are.",
            (Evidence(EMA_DECAY.name, decay), Evidence("initial share", share, healthy_range="below 0.01")),
            ("bad weights: samples of the raw weights are drawn next to those of the EMA",),
            severity="error" if share > HOPELESS_INITIAL_SHARE else "warning",
            fix=Fix("Let the EMA grow with the run.", {"ema.kind": "power"}, "safe"),
        )
    steps, decays = run.series(checks.EMA_DECAY)
    rough = run.latest(checks.EMA_ROUNDING, 0.0) > ROUGH_WAY_SHARE  # steps that are all rounding show nothing
    if rough or len(steps) < LOOKS or (run.numbers(checks.EMA_MOVED)[-LOOKS:] == 0).any() or not decays[-1] < 1:
        return None
    every = np.log(np.interp(np.arange(steps[0], steps[-1] + 1), steps, np.clip(decays, 1e-6, 1.0)))
    share = float(np.exp(every.sum()))
    is_drawn = bool(len(run.steps(checks.PICTURES_APART)) or len(run.steps(checks.EMA_CALLED)))
    needed = int(np.log(0.01) / np.log(np.clip(decays[-1], 1e-6, 1 - 1e-9)))
    is_early = steps[-1] < MIN_STEPS and not is_drawn and needed < MANY_STEPS
    planned = run.planned_steps
    if planned is not None:
        left = max(0, planned - int(steps[-1]))
        if float(np.exp(every.sum() + left * every[-1])) < HOPELESS_INITIAL_SHARE:
            return None
    elif share < MAX_INITIAL_SHARE or is_early:
        return None
    # What a loop plans is not known unless it passes `steps=`: 0.9999 is right for a million of them. Where samples of
    # this EMA are drawn already, they show its initial weights.
    certain = planned is not None or is_drawn
    return Detection(
        int(steps[0]),
        f"After {int(steps[-1]):,} steps{'' if certain else ' so far'} {share:.0%} of the EMA are still initial "
        f"weights; at this decay ({float(decays[-1]):.6f}) it takes {needed:,} steps until 1 % is left."
        + (" Samples are drawn from it already." if planned is None and is_drawn else "")
        + ("" if certain else " Train for longer than that, or say how long the run is (steps=, --steps)."),
        (
            run.evidence(checks.EMA_DECAY, "grows with the run"),
            Evidence("initial share", share, healthy_range="below 0.01"),
        ),
        ("an EMA that grows with the run: its decays would have been smaller at first",),
        severity=None if planned is not None else "warning" if is_drawn else "info",
    )


def frozen(run: RunHistory) -> Episode | None:
    """Whether it is updated at every step or at one in twenty: between looks that far apart it must have moved."""
    if run.latest(checks.EMA_COARSE, 0.0) == 1:
        return None
    if run.config is not None:  # safelight's own moves with every update that is not refused
        steps, moved = run.series(checks.EMA_MOVED)
        at, refused = run.series(REFUSED)
        without = at[refused > 0]
        made = ~(np.isin(steps, without) | np.isin(steps - 1, without))  # a look sees what the update before it left
        return episode_of(steps[made], moved[made] == 0, 2)
    episode = run.episode(checks.EMA_SAME, lambda numbers: numbers == 1, LOOKS)
    if episode is None or episode.last - episode.first < SPARSE_UPDATES:
        return None  # updated rarely
    weights_move = (run.during(checks.SAMPLE_PARAMETER_MOVED, episode) > 0).any()  # the small tensor that is watched
    return episode if weights_move else None


def stands_so_far(run: RunHistory) -> Detection | None:
    """A copy that the script itself calls an EMA: it may begin late, unless samples are drawn from it."""
    count = run.latest(checks.EMA_STILL, 0.0)
    if count < FEW_STILL or len(run.steps(checks.EMA_MOVED)):
        return None
    is_called = len(run.steps(checks.EMA_CALLED)) > 0
    return Detection(
        0,
        f"A copy of the network that the script names as an EMA has not moved in {count:.0f} updates"
        + (", and is called as for samples: they are those of the initial weights." if is_called else " so far."),
        run.evidence_of({checks.EMA_STILL: "0", checks.EMA_CALLED: None}),
        severity="error"
        if is_called and count > LATE_STILL
        else "warning"
        if is_called or count > LATE_STILL
        else "info",
        fix=Fix("Call its update after every step of the optimizer; if it begins later on purpose, nothing is wrong."),
    )


def not_an_average(run: RunHistory) -> Episode | None:
    steps, left = run.series(checks.EMA_LEFT)
    decays, rounding = run.at(checks.EMA_DECAY, steps), run.at(checks.EMA_ROUNDING, steps, 0.0)
    late = steps > 2 * MIN_STEPS
    # A decay of 0 is a copy of the weights: many EMAs are one until they begin (step_start_ema, update_after_step).
    strange = (left > 0.1) | (decays < -0.01) | (decays > 1.001)
    strange &= (rounding < ROUGH_WAY_SHARE) & ~np.isnan(decays)
    # Late looks are far apart: two of them are many updates.
    return episode_of(steps, strange, LOOKS) or episode_of(steps[late], strange[late], 2)


def shares_weights(run: RunHistory) -> Detection | None:
    """Exact: its tensors lie where the weights lie."""
    share = run.latest(checks.EMA_SHARED, 0.0)
    if share < HOPELESS_INITIAL_SHARE:
        return None
    return Detection(
        int(run.steps(checks.EMA_SHARED)[0]),
        f"{share:.0%} of the tensors of the EMA are the weights themselves, not copies of them: nothing is averaged.",
        (run.evidence(checks.EMA_SHARED, "0"),),
        ("an EMA that equals the weights for now: these lie in the same memory",),
        fix=Fix("Make the EMA from a deep copy of the model."),
    )


def forgets(run: RunHistory) -> Detection | None:
    """Warm-ups of the decay grow from look to look, and a copy until the average begins has a decay of 0."""
    steps, decays = run.series(checks.EMA_DECAY)
    rounding = run.at(checks.EMA_ROUNDING, steps, 0.0)
    last = decays[-LOOKS:]
    if (
        len(steps) < 2
        or steps[-1] - steps[0] < APART
        or not ((last > COPY) & (last < FORGETFUL) & (rounding[-LOOKS:] < COPY)).all()
    ):
        return None
    if last.max() > STEADY * last.min():
        return None
    decay = float(last[-1])
    is_gone = decay**2 < GONE
    return Detection(
        int(steps[-len(last)]),
        f"The EMA has a decay of {decay:.4f}: {'it is the weights of the last update' if is_gone else 'it forgets'} "
        f"({decay**2:.2g} of it are left after two updates), and averages next to nothing.",
        (run.evidence(checks.EMA_DECAY, "0.9 to 0.9999"),),
        ("a decay that grows with the steps: it stays as it is", "a copy until the average begins: its decay is 0"),
        severity="error" if is_gone else "warning",
        fix=Fix(
            f"Look for swapped factors: ema = decay · ema + (1 − decay) · weights. The decay meant is {1 - decay:.4g}."
        ),
    )


def copies_weights(run: RunHistory) -> Detection | None:
    """A choice until the run is half over: many EMAs copy until they begin."""
    steps, decays = run.series(checks.EMA_DECAY)
    episode = episode_of(steps, np.abs(decays) < 0.05, LOOKS)
    if episode is None or episode.ended_at is not None or episode.last <= 2 * MIN_STEPS:
        return None
    planned = run.planned_steps
    is_late = planned is not None and episode.last > HALFWAY * planned
    return Detection(
        episode.first,
        f"So far, at step {episode.last:,}, the EMA is a copy of the weights: it has not begun to average.",
        (run.evidence(checks.EMA_DECAY, "0.9 to 0.9999", episode.last),),
        severity="warning" if is_late else "info",
        fix=Fix("Check after how many updates it begins (step_start_ema, update_after_step), and its decay."),
    )


def unrelated(run: RunHistory) -> Detection | None:
    """At the first look an EMA equals the weights, or after a resume lies near them; another network does not."""
    steps, cosines = run.series(checks.EMA_COSINE)
    if len(steps) < LOOKS or not (cosines[0] < MIN_COSINE and cosines[-1] < MIN_COSINE):
        return None
    decay = run.latest(checks.EMA_DECAY, 1.0)
    needed = (
        f" At its decay of {decay:.6f} it takes {np.log(0.01) / np.log(decay):,.0f} steps until 1 % of it is left."
        if 0.5 < decay < 1
        else ""
    )
    return Detection(
        int(steps[0]),
        f"The EMA has nothing in common with the weights (a cosine of {float(cosines[0]):.2f} when the watch began): "
        "it is another network, such as a new one that no checkpoint was loaded into." + needed,
        (run.evidence(checks.EMA_COSINE, "above 0.9", int(steps[0])), run.evidence(checks.EMA_COSINE)),
        ("an EMA that lags: it was never near the weights",),
    )


def not_sampled(run: RunHistory) -> Episode | None:
    """Exact but for rounding: from the same noise different weights draw different samples."""
    steps, apart = run.series(checks.PICTURES_APART)
    return episode_of(
        steps, (apart < SAME_SAMPLES_DISTANCE) & (run.at(checks.PICTURES_DISTANCE, steps) > OTHER_WEIGHTS_DISTANCE)
    )


def worse_than_raw(run: RunHistory) -> Detection | None:
    """At the end of a run, when the rate is low and an EMA should have caught up."""
    steps, gains = run.series(EMA_GAIN)
    planned = run.planned_steps
    if len(steps) < 2 or planned is None or steps[-1] < NEAR_END * planned:
        return None
    raw, ema = run.at(FIXED_SET_LOSS_RAW, steps[-2:]), run.at(FIXED_SET_LOSS_EMA, steps[-2:])
    if not (gains[-2:] < -CERTAIN).all() or not (ema > (1 + LAG) * raw).all():
        return None
    return Detection(
        int(steps[-2]),
        f"At the end of the run the EMA has a loss of {float(ema[-1]):.4f}, the raw weights {float(raw[-1]):.4f} on "
        f"the same samples: it is {-float(gains[-1]):.0f} standard errors worse, and lags behind.",
        run.evidence_of(
            {
                EMA_GAIN: "above -4 at the end of a run",
                FIXED_SET_LOSS_EMA: "as of the raw weights",
                FIXED_SET_LOSS_RAW: None,
            }
        ),
        ("chance: both see the same images, noise and timesteps",),
        confidence=0.99,
    )


RULES = (
    error_rule(
        "EMA001",
        "ema.too-long",
        "An EMA longer than the run",
        what="An EMA without warm-up, with a decay so near 1 that the initial weights are still in it.",
        why="Samples come from the EMA: they stay noise while the weights are fine.",
        similar="With weights that are bad themselves, samples of the raw weights are bad too.",
        limits="A decay that is slightly too long for the speed of the training. In a loop that is not ours it is a "
        "remark until the loop passes steps=, or samples of the EMA are drawn.",
        fix="ema.kind power, or ema.warmup true, or a smaller ema.decay.",
        needs=((CONFIG, AtLeast(checks.EMA_DECAY, LOOKS)),),
        detect=too_long,
        explained_by="ema.frozen ema.low-precision ema.not-an-average ema.unrelated",
    ),
    error_rule(
        "EMA002",
        "ema.frozen",
        "An EMA that stands still",
        what="The EMA is not updated while the weights are.",
        why="Samples come from the EMA: they stay as they were at the start.",
        similar="A long EMA moves a little at every update. In half precision small steps are lost (EMA003).",
        limits="An EMA that is updated at few steps only. In a script that is only run, an EMA is known by the name of "
        "its variable or class: a remark, a warning where it is called as for samples.",
        fix="Update the EMA after every step of the optimizer, with the same model.",
        needs=((AtLeast(checks.EMA_SAME, LOOKS), AtLeast(checks.EMA_MOVED, 2), checks.EMA_STILL),),
        detect=first_of(
            on_episode(
                frozen,
                "The EMA did not move at {episode.looks} looks, from step {episode.first:,} to step {episode.last:,}, "
                "and the weights did.",
                "a long EMA: it moves a little at every update",
                evidence={checks.EMA_SAME: "0", checks.EMA_DISTANCE: None},
            ),
            stands_so_far,
        ),
        explained_by="optimizer.no-update optimizer.zeroed optimizer.other lr.zero loss.detached",
    ),
    error_rule(
        "EMA003",
        "ema.low-precision",
        "An EMA in half precision",
        what="The EMA is kept in 16 bits, in which steps of a thousandth are rounded away.",
        why="It stands still, or moves in jumps.",
        similar="In fp32 even an EMA of 0.9999 moves.",
        fix="Keep the EMA in fp32, whatever the precision of the model.",
        needs=(AtLeast(checks.EMA_COARSE, LOOKS),),
        detect=on_episode(
            lambda run: run.episode(checks.EMA_COARSE, lambda numbers: numbers == 1, LOOKS),
            "The EMA is kept in 16 bits: steps smaller than their rounding are lost, and it stands still or moves in "
            "jumps.",
            "a long EMA: in fp32 its steps are small, and not lost",
            latest={checks.EMA_COARSE: "0", checks.EMA_MOVED: "above 0"},
        ),
    ),
    warning_rule(
        "EMA004",
        "ema.every-micro-batch",
        "An EMA that is updated too often",
        what="The EMA moves between the micro-batches of one update.",
        why="With k micro-batches it forgets k times as fast as its decay says.",
        fix="Update the EMA after the optimizer's step only.",
        needs=(checks.EMA_BETWEEN,),
        detect=on_episode(
            lambda run: run.episode(checks.EMA_BETWEEN, lambda numbers: numbers == 1),
            "The EMA is updated between micro-batches, where the weights do not change: it is shorter than its decay "
            "says.",
            latest={checks.EMA_BETWEEN: "0"},
            can_end=False,
        ),
    ),
    error_rule(
        "EMA005",
        "ema.not-an-average",
        "An EMA of something else",
        what="No decay explains how the EMA moved towards the weights, or one below 0.5 does.",
        why="Samples come from weights that were never trained.",
        similar="A decay that changes with the steps is allowed for.",
        fix="ema = decay · ema + (1 − decay) · weights, after the update, for every parameter in its own place.",
        limits="An EMA that copies the weights until it begins is a remark; from the middle of a run whose length is "
        "known on, a warning. A decay below 0.5 that leaves more than a tenth after two updates is a warning.",
        needs=((checks.EMA_LEFT, checks.EMA_SHARED, checks.EMA_DECAY),),
        detect=first_of(
            shares_weights,
            forgets,
            on_episode(
                not_an_average,
                "The EMA does not follow the weights: no decay explains {:.0%} of its way (the best is {:.4f}).",
                evidence={checks.EMA_LEFT: "below 0.01"},
                latest={checks.EMA_DECAY: "0.9 to 0.9999"},
            ),
            copies_weights,
        ),
        explained_by="ema.every-micro ema.low-precision",
    ),
    error_rule(
        "EMA008",
        "ema.unrelated",
        "An EMA of another network",
        what="When the watch begins, the EMA is neither the weights nor near them, and it stays so.",
        why="Samples come from the EMA: they are noise, while the loss of the weights looks right.",
        similar="A long EMA lags behind the weights, from which it began. One that stands still is ema.frozen.",
        limits="Networks of few weights; an EMA that is loaded after the watch began.",
        fix="After a resume, load the EMA from the checkpoint as well; at the start, copy the weights into it.",
        needs=(AtLeast(checks.EMA_COSINE, LOOKS),),
        detect=unrelated,
    ),
    warning_rule(
        "EMA006",
        "ema.not-sampled",
        "An EMA that is never sampled from",
        what="Samples of the EMA are those of the raw weights, from the same noise, to the last digits.",
        why="Raw weights fluctuate: samples are worse than the model is, and change with every step.",
        similar="An EMA that stands still draws different samples than the weights do.",
        limits="Loops that are not ours.",
        fix="Pass the EMA weights to the sampler.",
        needs=(checks.PICTURES_APART, checks.PICTURES_DISTANCE),
        detect=on_episode(
            not_sampled,
            "Samples of the EMA are those of the raw weights, though the two are {1:.2%} apart: the EMA is computed, "
            "and never sampled from.",
            "an EMA that equals the weights: it is that far from them",
            evidence={checks.PICTURES_APART: "above 0.001"},
            latest={checks.PICTURES_DISTANCE: None},
        ),
        explained_by="ema. optimizer. lr.",
    ),
    warning_rule(
        "EMA007",
        "ema.lags",
        "An EMA that is worse than the weights",
        what="At the end of a run the EMA has a higher loss than the raw weights, on the same samples.",
        why="Samples and exports come from the EMA: they are worse than the model is.",
        similar="EMA001 knows it from the settings, before the run. In the first half of a run every EMA lags.",
        limits="Loops whose planned length is not known.",
        fix="A shorter EMA: a smaller ema.width or ema.decay; or train longer at the low rate.",
        needs=(AtLeast(EMA_GAIN, 2), FIXED_SET_LOSS_RAW, FIXED_SET_LOSS_EMA),
        detect=worse_than_raw,
        explained_by="ema. loss. lr. optimizer. precision.",
    ),
)
