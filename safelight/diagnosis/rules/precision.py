"""Arithmetic: loss scales, rounding, clipping and accumulation."""

from __future__ import annotations

import numpy as np

from safelight import checks
from safelight.diagnosis.case import Case, spell_of
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.rule import Rule, Seen, on_spell
from safelight.vocabulary import LOSS_SCALE, REFUSED

VANISHED, MANY, LOST = 0.01, 0.1, 0.3  # shares of the gradient; fp32 has 0 and 0.0001
ALONE = 0.999  # cosine with the gradient of one micro-batch
WINDOW, SHARE = 20, 0.5  # a healthy scale refuses one update in 2,000, and at most 16 in a row at the very start


def look_scale_halving(case: Case) -> Seen | None:
    steps, refused = case.series(REFUSED)
    if len(steps) < WINDOW or (not case.events("refused") and not refused.any()):
        return None
    overflow = {note.step for note in case.events("refused") if note.facts.get("overflow")}
    own = bool(case.events("refused"))
    hits = [bool(r) and (not own or int(s) in overflow) for s, r in zip(steps, refused, strict=True)]
    recent = hits[-WINDOW:]
    if sum(recent) < SHARE * WINDOW:
        return None
    places, scales = case.series(LOSS_SCALE)
    first = next(int(s) for s, hit in zip(steps[-WINDOW:], recent, strict=True) if hit)
    evidence = [Evidence(REFUSED.name, sum(recent) / WINDOW, (int(steps[-WINDOW]), int(steps[-1])), "below 0.01")]
    if len(scales):
        evidence.append(Evidence(LOSS_SCALE.name, float(scales[-1]), (int(places[0]), int(places[-1]))))
    return Seen(
        first,
        f"{sum(recent)} of the last {WINDOW} updates overflowed in fp16: the loss scale is halved without end.",
        tuple(evidence),
        ("the search for a scale at the start: it ends after 16 halvings",),
        fix=Fix("Train in bf16, or in fp32 where the device has no bf16.", {"train.precision": "bf16"}, "safe"),
    )


def look_no_scaler(case: Case) -> Seen | None:
    half = case.spell(checks.PRECISION_HALF, lambda numbers: numbers == 1)
    least = VANISHED if half is not None and case.latest(checks.PRECISION_SCALED, 0.0) == 0 else MANY
    spell = case.spell(checks.REPLAY_VANISHED, lambda numbers: numbers > least, 2)
    cosines = case.numbers(checks.REPLAY_COSINE)
    if spell is None or not len(cosines) or not float(np.median(cosines)) > 0.5:
        return None
    gone = case.numbers(checks.REPLAY_VANISHED)
    return Seen(
        spell.first,
        f"Training in fp16 without a loss scale: {float(gone.max()):.1%} of the gradient's values are rounded to 0.",
        (case.evidence(checks.REPLAY_VANISHED, "below 0.01"),),
    )


def look_lost_updates(case: Case) -> Seen | None:
    steps, lost = case.series(checks.UPDATE_LOST)
    half = max(case.latest(checks.OPTIMIZER_HALF_WEIGHTS, 0.0), case.latest(checks.UPDATE_COARSE, 0.0))
    if not len(steps) or half == 0:
        return None
    return on_spell(
        case,
        spell_of(steps, lost > LOST, 2),
        f"{float(np.median(lost)):.0%} of the weights with a gradient did not move: they are kept in 16 bits, and "
        "updates smaller than a rounding step are lost.",
        {},
        latest={checks.UPDATE_LOST: "below 0.01", checks.UPDATE_COARSE: "0"},
    )


def look_before_unscale(case: Case) -> Seen | None:
    """The optimizer's gradient is about the clip limit over the loss scale, and in the right direction."""
    steps, norms = case.series(checks.REPLAY_NORM)
    own, cosines = case.numbers(checks.REPLAY_OWN_NORM), case.numbers(checks.REPLAY_COSINE)
    scales = case.by_step(LOSS_SCALE)
    if case.latest(checks.PRECISION_SCALED, 0.0) != 1:
        return None
    tiny = [n < 0.02 * o and n * scales.get(int(s), 1.0) < 50 for s, n, o in zip(steps, norms, own, strict=True)]
    spell = spell_of(steps, np.array(tiny, dtype=bool) & (cosines > 0.5) & (norms > 0), 2)
    if spell is None:
        return None
    return Seen(
        spell.first,
        f"The optimizer gets a gradient of {case.latest(checks.REPLAY_NORM):.2g}, where the error has one of "
        f"{case.latest(checks.REPLAY_OWN_NORM):.2g}: it was clipped before it was unscaled.",
        (
            case.evidence(checks.REPLAY_RATIO, "0.1 to 1"),
            Evidence(LOSS_SCALE.name, float(scales.get(int(steps[-1]), 1.0))),
        ),
        over=spell.over,
    )


def look_sum(case: Case) -> Seen | None:
    steps, ratios = case.series(checks.REPLAY_RATIO)
    counts, cosines = case.numbers(checks.REPLAY_MICRO_BATCHES), case.numbers(checks.REPLAY_COSINE)
    told, errors = case.numbers(checks.REPLAY_TOLD), case.numbers(checks.REPLAY_ERROR)
    factor = ratios / np.maximum(told / np.maximum(errors, 1e-12), 1e-12)
    backwards = max(case.latest(checks.ACCUMULATION_BACKWARDS, 1.0), 1.0)  # more of them than micro-batches: made twice
    counts = np.maximum(counts, backwards)
    hits = (counts > 1) & (cosines > 0.98) & (np.abs(factor / np.maximum(counts, 1) - 1) < 0.1)
    return on_spell(
        case,
        spell_of(steps, hits),
        lambda _: (
            f"The gradient of {case.latest(checks.REPLAY_MICRO_BATCHES):.0f} micro-batches is "
            f"{float(factor[hits][-1]):.2f} times that of their mean: they are added up."
        ),
        {checks.REPLAY_RATIO: "1"},
        latest={checks.REPLAY_MICRO_BATCHES: None},
    )


def look_short_window(case: Case) -> Seen | None:
    """Also exact: the gradient is that of the last micro-batch alone, the others were cleared."""
    only = case.spell(checks.REPLAY_LAST_COSINE, lambda cosines: cosines > ALONE, 2)
    cosines = case.by_step(checks.REPLAY_COSINE)
    if only is not None and cosines.get(only.last, 1.0) < ALONE - 0.01:
        return Seen(
            only.first,
            f"The gradient of an update is that of its last micro-batch alone, of "
            f"{case.latest(checks.REPLAY_MICRO_BATCHES):.0f}: those of the others are cleared.",
            (case.evidence(checks.REPLAY_LAST_COSINE, "below 0.95"), case.evidence(checks.REPLAY_COSINE, "1")),
            over=only.over,
        )
    micro_batches, backwards = checks.ACCUMULATION_MICRO_BATCHES, checks.ACCUMULATION_BACKWARDS
    steps, counts = max((case.series(check) for check in (micro_batches, backwards)), key=lambda series: len(series[0]))
    if len(counts) < 3 or counts.max() < 2:
        return None
    return Seen(
        int(steps[1]),
        f"Updates are made from {counts.min():.0f} to {counts.max():.0f} micro-batches: the last one of an epoch is "
        "short, and its gradient is smaller than it should be, or its samples count more.",
        (
            case.evidence(checks.ACCUMULATION_MICRO_BATCHES, "always the same"),
            case.evidence(checks.ACCUMULATION_BACKWARDS),
        ),
    )


RULES = (
    Rule(
        code="PRE001",
        cause="precision.scale-halving",
        title="A loss scale that is halved without end",
        what="fp16 overflows at nearly every step, whatever the scale.",
        why="No update is made, and nothing is learnt.",
        alike="A few halvings at the start are the search for the scale. A NaN that does not come from fp16 is not "
        "marked as overflow (LOS001).",
        misses="Gradients that vanish in fp16 instead of overflowing.",
        fix="train.precision bf16 or fp32; find the layer whose activations exceed 65,504.",
        needs=(REFUSED,),
        look=look_scale_halving,
    ),
    Rule(
        code="PRE002",
        cause="precision.no-scaler",
        title="fp16 without a loss scale",
        what="Gradients that fp16 cannot hold are rounded to zero.",
        why="Layers with small gradients stop learning.",
        alike="A clipped gradient is small and not zero.",
        misses="Networks whose gradients fit into fp16.",
        fix="A GradScaler, or bf16.",
        needs=(checks.REPLAY_VANISHED, checks.REPLAY_COSINE),
        look=look_no_scaler,
    ),
    Rule(
        code="PRE003",
        cause="precision.lost-updates",
        title="Updates that are rounded away",
        what="Weights of 16 bits do not move, because updates are smaller than their rounding.",
        why="The training stops long before it has converged.",
        alike="Without any update (OPT001) no weight moves at all.",
        fix="Keep the weights in fp32 and use autocast for the forward pass.",
        needs=(checks.UPDATE_LOST,),
        look=look_lost_updates,
    ),
    Rule(
        code="CLI001",
        cause="clipping.before-unscale",
        title="Clipped before it was unscaled",
        what="The gradient was clipped while it was still scaled: what is left of it is tiny.",
        why="Updates are smaller than the optimizer's epsilon: the training is far too slow.",
        alike="A tight clip of an unscaled gradient does no harm with Adam. A low learning rate leaves the gradient "
        "as it is.",
        misses="Loops whose scaler is not passed.",
        fix="scaler.unscale_(optimizer) before clip_grad_norm_.",
        needs=(checks.PRECISION_SCALED, checks.REPLAY_NORM, checks.REPLAY_OWN_NORM, checks.REPLAY_COSINE),
        look=look_before_unscale,
    ),
    Rule(
        code="ACC001",
        cause="accumulation.sum",
        title="Micro-batches are added instead of averaged",
        what="The gradient is as many times too large as there are micro-batches.",
        why="Learning rate and clipping have another effect than intended.",
        alike="A loss that is summed over pixels is itself that large.",
        misses="Gradients that were clipped.",
        fix="Divide the loss by the number of micro-batches.",
        severity="warning",
        needs=(checks.REPLAY_RATIO, checks.REPLAY_MICRO_BATCHES, checks.REPLAY_COSINE, checks.REPLAY_ERROR),
        look=look_sum,
    ),
    Rule(
        code="ACC002",
        cause="accumulation.short-window",
        title="Updates from fewer micro-batches",
        what="The number of micro-batches per update changes, or only the last of them counts.",
        why="At the end of every epoch an update has another size, or computed gradients are lost.",
        fix="Drop the rest of an epoch, or divide by the true number of samples.",
        severity="warning",
        needs=((checks.REPLAY_LAST_COSINE, checks.ACCUMULATION_MICRO_BATCHES, checks.ACCUMULATION_BACKWARDS),),
        look=look_short_window,
    ),
)
