"""Arithmetic: loss scales, rounding, clipping and accumulation."""

from __future__ import annotations

import numpy as np

from safelight import checks
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.rule import Detection, Rule, on_episode
from safelight.diagnosis.run_history import RunHistory, episode_of
from safelight.vocabulary import LOSS_SCALE, REFUSED

VANISHED, MANY, LOST = 0.01, 0.1, 0.3  # shares of the gradient; fp32 has 0 and 0.0001
ALONE = 0.999  # cosine with the gradient of one micro-batch
WINDOW, SHARE = 20, 0.5  # a healthy scale refuses one update in 2,000, and at most 16 in a row at the very start


def look_scale_halving(run: RunHistory) -> Detection | None:
    steps, refused = run.series(REFUSED)
    if len(steps) < WINDOW or (not run.events("refused") and not refused.any()):
        return None
    overflow = {note.step for note in run.events("refused") if note.facts.get("overflow")}
    own = bool(run.events("refused"))
    hits = [bool(r) and (not own or int(s) in overflow) for s, r in zip(steps, refused, strict=True)]
    recent = hits[-WINDOW:]
    if sum(recent) < SHARE * WINDOW:
        return None
    places, scales = run.series(LOSS_SCALE)
    first = next(int(s) for s, hit in zip(steps[-WINDOW:], recent, strict=True) if hit)
    evidence = [Evidence(REFUSED.name, sum(recent) / WINDOW, (int(steps[-WINDOW]), int(steps[-1])), "below 0.01")]
    if len(scales):
        evidence.append(Evidence(LOSS_SCALE.name, float(scales[-1]), (int(places[0]), int(places[-1]))))
    return Detection(
        first,
        f"{sum(recent)} of the last {WINDOW} updates overflowed in fp16: the loss scale is halved without end.",
        tuple(evidence),
        ("the search for a scale at the start: it ends after 16 halvings",),
        fix=Fix("Train in bf16, or in fp32 where the device has no bf16.", {"train.precision": "bf16"}, "safe"),
    )


def look_no_scaler(run: RunHistory) -> Detection | None:
    half = run.episode(checks.PRECISION_HALF, lambda numbers: numbers == 1)
    least = VANISHED if half is not None and run.latest(checks.PRECISION_SCALED, 0.0) == 0 else MANY
    episode = run.episode(checks.REPLAY_VANISHED, lambda numbers: numbers > least, 2)
    cosines = run.numbers(checks.REPLAY_COSINE)
    if episode is None or not len(cosines) or not float(np.median(cosines)) > 0.5:
        return None
    gone = run.numbers(checks.REPLAY_VANISHED)
    return Detection(
        episode.first,
        f"Training in fp16 without a loss scale: {float(gone.max()):.1%} of the gradient's values are rounded to 0.",
        (run.evidence(checks.REPLAY_VANISHED, "below 0.01"),),
    )


def look_lost_updates(run: RunHistory) -> Detection | None:
    steps, lost = run.series(checks.UPDATE_LOST)
    half = max(run.latest(checks.OPTIMIZER_HALF_WEIGHTS, 0.0), run.latest(checks.UPDATE_COARSE, 0.0))
    if not len(steps) or half == 0:
        return None
    return on_episode(
        run,
        episode_of(steps, lost > LOST, 2),
        f"{float(np.median(lost)):.0%} of the weights with a gradient did not move: they are kept in 16 bits, and "
        "updates smaller than a rounding step are lost.",
        {},
        latest={checks.UPDATE_LOST: "below 0.01", checks.UPDATE_COARSE: "0"},
    )


def look_before_unscale(run: RunHistory) -> Detection | None:
    """The optimizer's gradient is about the clip limit over the loss scale, and in the right direction."""
    steps, norms = run.series(checks.REPLAY_NORM)
    own, cosines = run.numbers(checks.REPLAY_OWN_NORM), run.numbers(checks.REPLAY_COSINE)
    scales = run.by_step(LOSS_SCALE)
    if run.latest(checks.PRECISION_SCALED, 0.0) != 1:
        return None
    tiny = [n < 0.02 * o and n * scales.get(int(s), 1.0) < 50 for s, n, o in zip(steps, norms, own, strict=True)]
    episode = episode_of(steps, np.array(tiny, dtype=bool) & (cosines > 0.5) & (norms > 0), 2)
    if episode is None:
        return None
    return Detection(
        episode.first,
        f"The optimizer gets a gradient of {run.latest(checks.REPLAY_NORM):.2g}, where the error has one of "
        f"{run.latest(checks.REPLAY_OWN_NORM):.2g}: it was clipped before it was unscaled.",
        (
            run.evidence(checks.REPLAY_RATIO, "0.1 to 1"),
            Evidence(LOSS_SCALE.name, float(scales.get(int(steps[-1]), 1.0))),
        ),
        over=episode.over,
    )


def look_sum(run: RunHistory) -> Detection | None:
    steps, ratios = run.series(checks.REPLAY_RATIO)
    counts, cosines = run.numbers(checks.REPLAY_MICRO_BATCHES), run.numbers(checks.REPLAY_COSINE)
    told, errors = run.numbers(checks.REPLAY_TOLD), run.numbers(checks.REPLAY_ERROR)
    factor = ratios / np.maximum(told / np.maximum(errors, 1e-12), 1e-12)
    backwards = max(run.latest(checks.ACCUMULATION_BACKWARDS, 1.0), 1.0)  # more of them than micro-batches: made twice
    counts = np.maximum(counts, backwards)
    hits = (counts > 1) & (cosines > 0.98) & (np.abs(factor / np.maximum(counts, 1) - 1) < 0.1)
    return on_episode(
        run,
        episode_of(steps, hits),
        lambda _: (
            f"The gradient of {run.latest(checks.REPLAY_MICRO_BATCHES):.0f} micro-batches is "
            f"{float(factor[hits][-1]):.2f} times that of their mean: they are added up."
        ),
        {checks.REPLAY_RATIO: "1"},
        latest={checks.REPLAY_MICRO_BATCHES: None},
    )


def look_short_window(run: RunHistory) -> Detection | None:
    """Also exact: the gradient is that of the last micro-batch alone, the others were cleared."""
    only = run.episode(checks.REPLAY_LAST_COSINE, lambda cosines: cosines > ALONE, 2)
    cosines = run.by_step(checks.REPLAY_COSINE)
    if only is not None and cosines.get(only.last, 1.0) < ALONE - 0.01:
        return Detection(
            only.first,
            f"The gradient of an update is that of its last micro-batch alone, of "
            f"{run.latest(checks.REPLAY_MICRO_BATCHES):.0f}: those of the others are cleared.",
            (run.evidence(checks.REPLAY_LAST_COSINE, "below 0.95"), run.evidence(checks.REPLAY_COSINE, "1")),
            over=only.over,
        )
    micro_batches, backwards = checks.ACCUMULATION_MICRO_BATCHES, checks.ACCUMULATION_BACKWARDS
    steps, counts = max((run.series(check) for check in (micro_batches, backwards)), key=lambda series: len(series[0]))
    if len(counts) < 3 or counts.max() < 2:
        return None
    return Detection(
        int(steps[1]),
        f"Updates are made from {counts.min():.0f} to {counts.max():.0f} micro-batches: the last one of an epoch is "
        "short, and its gradient is smaller than it should be, or its samples count more.",
        (
            run.evidence(checks.ACCUMULATION_MICRO_BATCHES, "always the same"),
            run.evidence(checks.ACCUMULATION_BACKWARDS),
        ),
    )


RULES = (
    Rule(
        code="PRE001",
        cause="precision.scale-halving",
        title="A loss scale that is halved without end",
        what="fp16 overflows at nearly every step, whatever the scale.",
        why="No update is made, and nothing is learnt.",
        similar="A few halvings at the start are the search for the scale. A NaN that does not come from fp16 is not "
        "marked as overflow (LOS001).",
        limits="Gradients that vanish in fp16 instead of overflowing.",
        fix="train.precision bf16 or fp32; find the layer whose activations exceed 65,504.",
        needs=(REFUSED,),
        detect=look_scale_halving,
    ),
    Rule(
        code="PRE002",
        cause="precision.no-scaler",
        title="fp16 without a loss scale",
        what="Gradients that fp16 cannot hold are rounded to zero.",
        why="Layers with small gradients stop learning.",
        similar="A clipped gradient is small and not zero.",
        limits="Networks whose gradients fit into fp16.",
        fix="A GradScaler, or bf16.",
        needs=(checks.REPLAY_VANISHED, checks.REPLAY_COSINE),
        detect=look_no_scaler,
    ),
    Rule(
        code="PRE003",
        cause="precision.lost-updates",
        title="Updates that are rounded away",
        what="Weights of 16 bits do not move, because updates are smaller than their rounding.",
        why="The training stops long before it has converged.",
        similar="Without any update (OPT001) no weight moves at all.",
        fix="Keep the weights in fp32 and use autocast for the forward pass.",
        needs=(checks.UPDATE_LOST,),
        detect=look_lost_updates,
    ),
    Rule(
        code="CLI001",
        cause="clipping.before-unscale",
        title="Clipped before it was unscaled",
        what="The gradient was clipped while it was still scaled: what is left of it is tiny.",
        why="Updates are smaller than the optimizer's epsilon: the training is far too slow.",
        similar="A tight clip of an unscaled gradient does no harm with Adam. A low learning rate leaves the gradient "
        "as it is.",
        limits="Loops whose scaler is not passed.",
        fix="scaler.unscale_(optimizer) before clip_grad_norm_.",
        needs=(checks.PRECISION_SCALED, checks.REPLAY_NORM, checks.REPLAY_OWN_NORM, checks.REPLAY_COSINE),
        detect=look_before_unscale,
    ),
    Rule(
        code="ACC001",
        cause="accumulation.sum",
        title="Micro-batches are added instead of averaged",
        what="The gradient is as many times too large as there are micro-batches.",
        why="Learning rate and clipping have another effect than intended.",
        similar="A loss that is summed over pixels is itself that large.",
        limits="Gradients that were clipped.",
        fix="Divide the loss by the number of micro-batches.",
        severity="warning",
        needs=(checks.REPLAY_RATIO, checks.REPLAY_MICRO_BATCHES, checks.REPLAY_COSINE, checks.REPLAY_ERROR),
        detect=look_sum,
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
        detect=look_short_window,
    ),
)
