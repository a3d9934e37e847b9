"""Averages that are too long for the run, stand still, or average something else."""

from __future__ import annotations

import numpy as np

from safelight.config.check import TOLD_INITIAL_SHARE, initial_share
from safelight.diagnosis.case import Case, Spell, spell_of
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.rule import Rule, Seen
from safelight.vocabulary import EMA_DECAY, REFUSED

LOOKS = 3
ROUGH = 0.3  # share of the way of an average
SPARSE = 24  # updates: averages that are moved at few of them are moved at every 10th
SAME, OTHER = 1e-5, 1e-3  # between pictures; between weights, over their length
HOPELESS = 0.5  # more than half of what is sampled is the beginning
ENOUGH, INITIAL = 60, 0.9  # steps; the share of the beginning that is too much for any run of that length


def look_too_long(case: Case) -> Seen | None:
    """Closed form: what the average still holds of the initial weights after the last step."""
    if case.config is None or (share := initial_share(case.config)) <= TOLD_INITIAL_SHARE:
        return None
    decay, steps = case.config.ema.decay, case.config.train.steps
    return Seen(
        severity="error" if share > HOPELESS else "warning",
        step=0,
        confidence=1.0,
        summary=f"An average with decay {decay} over {steps:,} steps still holds {share:.0%} of the random initial "
        "weights: its samples show them, however good the weights are.",
        evidence=(Evidence(EMA_DECAY.name, decay), Evidence("initial share", share, usual="below 0.01")),
        fix=Fix("Let the average grow with the run.", {"ema.kind": "power"}, "safe"),
        ruled_out=("bad weights: the raw ones are drawn beside the averaged ones at every picture",),
    )


def look_too_long_here(case: Case) -> Seen | None:
    """By the settings, and by what the decays that were seen leave of the beginning."""
    if case.config is not None and (planned := look_too_long(case)) is not None:
        return planned
    steps, decays = case.check("average/decay")
    rough = case.newest("average/rounding", 0.0) > ROUGH  # steps so small that all of them is rounding say nothing
    if rough or len(steps) < LOOKS or (case.check("average/moved")[1][-LOOKS:] == 0).any() or not decays[-1] < 1:
        return None
    every = np.log(np.interp(np.arange(steps[0], steps[-1] + 1), steps, np.clip(decays, 1e-6, 1.0)))
    share = float(np.exp(every.sum()))
    if case.config is not None:  # how long the run will be is known
        left = max(0, case.config.train.steps - int(steps[-1]))
        if float(np.exp(every.sum() + left * every[-1])) < HOPELESS:
            return None
    elif share < INITIAL or steps[-1] < ENOUGH:
        return None
    needed = int(np.log(0.01) / np.log(min(float(decays[-1]), 1 - 1e-9)))
    return Seen(
        int(steps[0]),
        f"After {int(steps[-1]):,} steps {share:.0%} of the average are still the weights that it began with; at this "
        f"decay ({float(decays[-1]):.6f}) it takes {needed:,} steps until 1 % is left.",
        (case.evidence("average/decay", "grows with the run"), Evidence("initial share", share, usual="below 0.01")),
        ("an average that grows with the run: its decays would have been smaller at first",),
    )


def look_frozen(case: Case) -> Seen | None:
    """However it is moved, at every update or at one in twenty: between looks that lie so far apart it must be."""
    if case.config is not None:  # safelight's own moves with every update that is not refused
        steps, moved = case.check("average/moved")
        at, refused = case.series(REFUSED.name)
        without = at[refused > 0]
        made = ~(np.isin(steps, without) | np.isin(steps - 1, without))  # a look is at what the update before it left
        spell = spell_of(steps[made], moved[made] == 0, 2)
    else:
        spell = case.spell("average/same", lambda numbers: numbers == 1, LOOKS)
        if spell is not None and (spell.last - spell.first < SPARSE or not _moves(case, spell)):
            return None  # moved at few updates only; or the tensor that is watched for all never moves itself
    if spell is None or case.newest("average/coarse", 0.0) == 1:
        return None
    return Seen(
        spell.first,
        f"The average stood still at {spell.looks} looks, from step {spell.first:,} to step {spell.last:,}, and the "
        "weights did not.",
        (case.evidence("average/same", "0", spell.last), case.evidence("average/distance", None, spell.last)),
        ("a long average: it moves a little at every update",),
        over=spell.over,
    )


def _moves(case: Case, spell: Spell) -> bool:
    steps, moved = case.check("sentinel/moved")
    return bool((moved[(steps >= spell.first) & (steps <= spell.last)] > 0).any())


def look_low_precision(case: Case) -> Seen | None:
    spell = case.spell("average/coarse", lambda numbers: numbers == 1, LOOKS)
    if spell is None:
        return None
    return Seen(
        spell.first,
        "The average is kept in 16 bits: steps smaller than their rounding are lost, and it stays where it is or moves "
        "in leaps.",
        (case.evidence("average/coarse", "0"), case.evidence("average/moved", "above 0")),
        ("a long average: in fp32 its steps are small, and not lost",),
        over=spell.over,
    )


def look_micro(case: Case) -> Seen | None:
    spell = case.spell("average/between", lambda numbers: numbers == 1)
    if spell is None:
        return None
    return Seen(
        spell.first,
        "The average is moved between micro-batches, where the weights stand still: it is shorter than it says.",
        (case.evidence("average/between", "0"),),
    )


def look_not_average(case: Case) -> Seen | None:
    steps, left = case.check("average/left")
    _, decays = case.check("average/decay")
    late = steps > 2 * ENOUGH
    strange = (left > 0.1) | (decays < -0.01) | (decays > 1.001) | (late & (decays < 0.05))
    rounding = case.check("average/rounding")[1]
    if len(rounding) == len(strange):
        strange &= rounding < ROUGH
    # Late looks are far apart, so that two of them are many updates.
    spell = spell_of(steps, strange, LOOKS) or spell_of(steps[late], strange[late], 2)
    if spell is None:
        return None
    return Seen(
        spell.first,
        f"The average does not follow the weights: {case.newest('average/left'):.0%} of its way is not explained by "
        f"any "
        f"decay (the best is {case.newest('average/decay'):.4f}).",
        (case.evidence("average/left", "below 0.01", spell.last), case.evidence("average/decay", "0.9 to 0.9999")),
        over=spell.over,
    )


def look_not_sampled(case: Case) -> Seen | None:
    """Exact but for rounding: from the same noise other weights draw other pictures."""
    steps, apart = case.check("pictures/apart")
    spell = spell_of(steps, (apart < SAME) & (case.check("pictures/distance")[1] > OTHER))
    if spell is None:
        return None
    return Seen(
        spell.first,
        "Samples of the average are those of the raw weights, though the two are "
        f"{case.newest('pictures/distance'):.2%} apart: the average is made, and never drawn from.",
        (case.evidence("pictures/apart", "above 0.001", spell.last), case.evidence("pictures/distance")),
        ("an average that has caught up with the weights: it is that far from them",),
        over=spell.over,
    )


RULES = (
    Rule(
        code="EMA001",
        cause="ema.too-long",
        title="An average longer than the run",
        what="An exponential average without warm-up, with a decay so near 1 that the initial weights are still in it.",
        why="Samples come from the average: they stay noise while the weights are fine.",
        alike="With weights that are bad themselves, samples of the raw weights are bad too.",
        misses="A decay that is a little too long for the speed of the training.",
        fix="ema.kind power, or ema.warmup true, or a smaller ema.decay.",
        look=look_too_long_here,
        yields=("ema.frozen", "ema.low-precision", "ema.not-an-average"),
    ),
    Rule(
        code="EMA002",
        cause="ema.frozen",
        title="An average that stands still",
        what="The average is not moved while the weights are.",
        why="Samples come from the average: they stay as at the beginning.",
        alike="A long average moves a little at every update. In half precision small steps are lost (EMA003).",
        misses="An average that is moved at few steps only.",
        fix="Call the update of the average after every step of the optimizer, with this very model.",
        look=look_frozen,
        yields=("optimizer.no-update", "optimizer.zeroed", "optimizer.other", "lr.zero", "loss.detached"),
    ),
    Rule(
        code="EMA003",
        cause="ema.low-precision",
        title="An average in half precision",
        what="The average is kept in 16 bits, in which steps of a thousandth are rounded away.",
        why="It stands still, or moves in leaps.",
        alike="In fp32 even an average of 0.9999 moves.",
        misses="",
        fix="Keep the average in fp32, whatever the precision of the model.",
        look=look_low_precision,
    ),
    Rule(
        code="EMA004",
        cause="ema.every-micro-batch",
        title="An average that is moved too often",
        what="The average moves between the micro-batches of one update.",
        why="With k micro-batches it forgets k times as fast as it says.",
        alike="",
        misses="",
        fix="Move the average after the update only.",
        severity="warning",
        look=look_micro,
    ),
    Rule(
        code="EMA005",
        cause="ema.not-an-average",
        title="An average of something else",
        what="No decay explains how the average moved from where it was towards the weights.",
        why="Samples come from weights that nobody trained.",
        alike="A decay that changes with the steps is allowed for.",
        misses="",
        fix="average = decay · average + (1 − decay) · weights, after the update, for every parameter in its own "
        "place.",
        look=look_not_average,
        yields=("ema.every-micro", "ema.low-precision"),
    ),
    Rule(
        code="EMA006",
        cause="ema.not-sampled",
        title="An average that is never drawn from",
        what="Pictures of the averaged weights are those of the raw ones, from the same noise, to the last digits.",
        why="Raw weights jump about: samples are worse than the model is, and change with every step.",
        alike="An average that stands still draws other pictures than the weights do.",
        misses="Loops that are not ours.",
        fix="Give the averaged weights to the sampler.",
        severity="warning",
        look=look_not_sampled,
        yields=("ema.", "optimizer.", "lr."),
    ),
)
