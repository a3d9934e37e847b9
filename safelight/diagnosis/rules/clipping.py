"""Gradients that are clipped too early, spike, or are not the mean of their micro-batches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from safelight import checks
from safelight.diagnosis.definitions import FAR_OUT
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.rule import AtLeast, Detection, error_rule, first_of, on_episode, warning_rule
from safelight.diagnosis.rules.curve.jumps import has_usual_images
from safelight.diagnosis.rules.learning import CAUSES_OF_DAMAGE
from safelight.diagnosis.run_history import Episode, HealthyRanges, RunHistory, episode_of, running_median
from safelight.diagnosis.spacing import LogNeed
from safelight.vocabulary import GRADIENT_NORM, GRADIENT_PART, LOSS, LOSS_SCALE

AFTER, LONG_AFTER = 8, 64  # steps
ALONE = 0.999  # cosine with the gradient of one micro-batch
USUAL_STEPS = 24
CALM = 16  # steps whose median is one norm
GROWN = 30.0  # times the calmest of the run; 3.3 at most in 165 healthy ones
# Times the loss, which counts as 10 at least. Healthy norms have a median of 0.1 to 3.1, at most 8.5; 79 and 362 where
# a sum over 128 samples is differentiated.
LARGE_NORM, LEAST_LOSS = 100.0, 10.0


class Spike(NamedTuple):
    """A gradient far beyond all before."""

    step: int
    factor: float
    """Times the largest of the steps before."""
    by_batch: bool
    """Whether the batch's own error was far out too."""


def first_spike(run: RunHistory) -> Spike | None:
    steps, norms = run.series(GRADIENT_NORM)
    odd = _beyond(norms, FAR_OUT)
    if not len(odd):
        return None
    place = int(odd[0])
    places, losses = run.series(LOSS)
    mine = int(np.searchsorted(places, steps[place]))
    if mine >= len(losses) or mine < USUAL_STEPS or places[mine] != steps[place]:
        return None
    by_batch = not losses[mine] < 3 * losses[mine - USUAL_STEPS : mine].max()
    return Spike(int(steps[place]), float(norms[place] / norms[max(0, place - USUAL_STEPS) : place].max()), by_batch)


def outlier_batches(run: RunHistory) -> Detection | None:
    """Batches that are far from all others, by their images or by their error."""
    steps, reach = run.series(checks.BATCH_ABS_MAX)
    odd = steps[reach > 4 * np.median(reach)] if len(reach) >= USUAL_STEPS else steps[:0]
    if not 0 < len(odd) < 0.2 * len(reach):
        spike = first_spike(run)
        odd = [spike.step] if spike is not None and spike.by_batch and _passes(run, spike.step) else []
    if not len(odd):
        return None
    count, step = len(odd), int(odd[0])
    usual = has_usual_images(run, step)
    return Detection(
        step,
        f"{count} batch{'es' * (count != 1)} differed strongly from all others, first at step {step:,}: "
        f"{'errors' if usual else 'images or errors'} many times as large as usual, which one update carries into "
        "every weight.",
        run.evidence_of({checks.BATCH_ABS_MAX: "as in other batches", checks.LOSS_MSE: "as usual"}, step),
        (
            "images that changed once and for all: the batches after it are as before",
            *(("odd images: those of that step and of the one before were as in other batches",) if usual else ()),
        ),
        confidence=0.99,
        fix=Fix("Clip gradients by their norm; check labels, timesteps and loss weights of that step.")
        if usual
        else None,
    )


def large_norms(run: RunHistory) -> Detection | None:
    """Norms that have grown far beyond those of the same run, or that are far beyond the loss from the start."""
    steps, norms = run.series(GRADIENT_NORM)
    usable = np.isfinite(norms) & (norms > 0)
    steps, norms = steps[usable], norms[usable]
    losses = run.numbers(LOSS)
    losses = np.abs(losses[np.isfinite(losses)])
    if len(norms) < 2 * CALM or not len(losses):
        return None
    middles = running_median(norms, CALM)
    calm = np.minimum.accumulate(middles)
    grown = episode_of(steps[CALM - 1 :], middles > GROWN * calm, CALM // 4)
    always = float(np.median(norms)) > LARGE_NORM * max(float(np.median(losses)), LEAST_LOSS)
    if grown is None and not always:
        return None
    latest = float(middles[-1]) if grown is None else run.median(GRADIENT_NORM, grown)
    part = _largest_part(run)
    adaptive = grown is None and run.latest(checks.OPTIMIZER_ADAPTIVE, 0.0) == 1
    return Detection(
        int(steps[0]) if grown is None else grown.first,
        f"The gradient has a norm of {latest:.3g}"
        + (f", {latest / float(calm[-1]):.3g} times what it was at its calmest" if grown else " from the start")
        + (f"; most of it is in {part}." if part else "."),
        (Evidence(GRADIENT_NORM.name, latest, (int(steps[0]), int(steps[-1])), "0.1 to 10 for a mean over the batch"),),
        ("a single spike: it is so for 16 steps and more",),
        confidence=0.95,
        severity="info" if adaptive else None,  # Adam divides by it
        ended_at=None if grown is None else grown.ended_at,
    )


def _largest_part(run: RunHistory) -> str:
    sizes = {part: run.latest(f"{GRADIENT_PART.name}/{part}", 0.0) for part in run.parts(GRADIENT_PART)}
    return max(sizes, key=lambda part: sizes[part]) if len(sizes) > 1 else ""


def _passes(run: RunHistory, step: int) -> bool:
    """Whether the errors after a step are those of before; where they stay, or begin to grow, it was not the batch."""
    steps, losses = run.series(LOSS)
    place = int(np.searchsorted(steps, step))
    before, after = losses[max(0, place - USUAL_STEPS) : place], losses[place + 1 : place + 1 + LONG_AFTER]
    if len(after) < AFTER // 2:
        return True
    return bool((running_median(after, min(AFTER, len(after))) < 3 * before.max()).all())


def _beyond(numbers: np.ndarray, factor: float) -> np.ndarray:
    """Places of numbers that many times exceed the largest of those just before them."""
    if len(numbers) <= USUAL_STEPS:
        return np.zeros(0, np.int64)
    highest = sliding_window_view(numbers[:-1], USUAL_STEPS).max(1)  # NaN if one of them is
    with np.errstate(invalid="ignore"):
        odd = np.isfinite(highest) & (highest > 0) & (numbers[USUAL_STEPS:] > factor * highest)
    return np.flatnonzero(odd) + USUAL_STEPS


def before_unscale(run: RunHistory) -> Detection | None:
    """The optimizer's gradient is about the clip limit over the loss scale, and in the right direction."""
    steps, norms = run.series(checks.APPLIED_GRADIENT_NORM)
    own, cosines = run.at(checks.REPLAY_GRADIENT_NORM, steps), run.at(checks.REPLAY_COSINE, steps)
    scales = run.at(LOSS_SCALE, steps, 1.0)
    tiny = (norms > 0) & (norms < 0.02 * own) & (norms * scales < 50)
    episode = episode_of(steps, tiny & (cosines > 0.5), 2)
    if episode is None or run.latest(checks.PRECISION_SCALED, 0.0) != 1:
        return None
    return Detection(
        episode.first,
        f"The optimizer gets a gradient of {float(norms[-1]):.2g}, where the error has one of {float(own[-1]):.2g}: it "
        "was clipped before it was unscaled.",
        (run.evidence(checks.REPLAY_RATIO, "0.1 to 1"), Evidence(LOSS_SCALE.name, float(scales[-1]))),
        ended_at=episode.ended_at,
    )


def summed(run: RunHistory) -> Detection | None:
    steps, ratios = run.series(checks.REPLAY_RATIO)
    counts, cosines, losses, errors = (
        run.at(check, steps)
        for check in (
            checks.REPLAY_MICRO_BATCHES,
            checks.REPLAY_COSINE,
            checks.LOOP_LOSS,
            checks.REPLAY_MSE,
        )
    )
    factor = ratios / np.maximum(losses / np.maximum(errors, 1e-12), 1e-12)
    backwards = max(run.latest(checks.ACCUMULATION_BACKWARDS, 1.0), 1.0)  # more of them than micro-batches: made twice
    counts = np.maximum(counts, backwards)
    hits = (counts > 1) & (cosines > 0.98) & (np.abs(factor / np.maximum(counts, 1) - 1) < 0.1)
    if (episode := episode_of(steps, hits)) is None:
        return None
    scale_free = _is_scale_free(run)
    return Detection(
        episode.first,
        f"The gradient of {run.latest(checks.REPLAY_MICRO_BATCHES):.0f} micro-batches is "
        f"{float(factor[hits][-1]):.2f} times that of their mean: they are added up."
        + (" This optimizer divides by the size of the gradient: only clipping feels it." if scale_free else ""),
        (run.evidence(checks.REPLAY_RATIO, "1", episode.last), run.evidence(checks.REPLAY_MICRO_BATCHES)),
        ended_at=episode.ended_at,
        severity="info" if scale_free else None,
    )


def _is_scale_free(run: RunHistory) -> bool:
    """Adam and its kin make the same update of any multiple of the gradients: what only scales them is a choice."""
    return run.latest(checks.OPTIMIZER_ADAPTIVE, 0.0) == 1


def last_alone(run: RunHistory) -> Episode | None:
    """Exact: the gradient is that of the last micro-batch alone, the others were cleared."""
    only = run.episode(checks.REPLAY_LAST_COSINE, lambda cosines: cosines > ALONE, 2)
    if only is None or not run.at(checks.REPLAY_COSINE, np.array([only.last]))[0] < ALONE - 0.01:
        return None
    return only


def short_window(run: RunHistory) -> Detection | None:
    counted: HealthyRanges = {checks.ACCUMULATION_MICRO_BATCHES: "always the same", checks.ACCUMULATION_BACKWARDS: None}
    steps, counts = max((run.series(check) for check in counted), key=lambda series: len(series[0]))
    if len(counts) < 3 or counts.max() < 2:
        return None
    return Detection(
        int(steps[1]),
        f"Updates are made from {counts.min():.0f} to {counts.max():.0f} micro-batches: the last one of an epoch is "
        "short, as accelerate makes it. Where the loss is divided by the full number, that update has a gradient of "
        f"{counts.min() / counts.max():.0%}; where by the true one, its samples count more.",
        run.evidence_of(counted),
        # Adam's update hardly changes; plain SGD's is that much shorter.
        severity="info" if _is_scale_free(run) else None,
    )


RULES = (
    error_rule(
        "CLI001",
        "clipping.before-unscale",
        "Clipped before it was unscaled",
        what="The gradient was clipped while it was still scaled: what is left of it is tiny.",
        why="Updates are smaller than the optimizer's epsilon: the training is far too slow.",
        similar="A tight clip of an unscaled gradient does no harm with Adam. A low learning rate leaves the gradient "
        "as it is.",
        limits="Loops whose scaler is not passed.",
        fix="scaler.unscale_(optimizer) before clip_grad_norm_.",
        needs=(
            checks.PRECISION_SCALED,
            checks.APPLIED_GRADIENT_NORM,
            checks.REPLAY_GRADIENT_NORM,
            checks.REPLAY_COSINE,
        ),
        detect=before_unscale,
    ),
    warning_rule(
        "CLI002",
        "clipping.outlier-batches",
        "Outlier batches",
        what="Single batches whose images or errors are many times those of all others.",
        why="Without clipping one of them changes every weight and the optimizer's moments.",
        similar="Images that change once and for all are data.shifted.",
        limits="Outliers among many in a large batch.",
        fix="clipping.kind adaptive; check the images of that step.",
        needs=((AtLeast(checks.BATCH_ABS_MAX, USUAL_STEPS + 1), AtLeast(GRADIENT_NORM, USUAL_STEPS + 1)),),
        detect=outlier_batches,
        logs=LogNeed("every step"),
        explained_by="lr.jump lr.too-high data.shifted data.nonfinite optimizer.no-zero loss.weighting",
    ),
    warning_rule(
        "CLI003",
        "clipping.large-gradients",
        "Gradients that are very large",
        what="The gradient norm is thirty times what it was in calm steps, or above 1,000 where the loss is below 10.",
        why="One update in a wrong direction is enough; plain SGD diverges, and fp16 overflows.",
        similar="A single spike is a batch (CLI002) or a fault of the machine (PRE004).",
        limits="In watched loops the norm is taken after their own clipping, so that only what that leaves is seen.",
        fix="Clip gradients by their norm (1.0 is usual), lower optimizer.lr, average the loss over batch and pixels "
        "instead of adding it up, and look at the part that is named.",
        needs=(AtLeast(GRADIENT_NORM, 2 * CALM), LOSS),
        detect=large_norms,
        logs=LogNeed(),
        explained_by=f"{CAUSES_OF_DAMAGE} data.",
    ),
    warning_rule(
        "ACC001",
        "accumulation.sum",
        "Micro-batches are added instead of averaged",
        what="The gradient is as many times too large as there are micro-batches.",
        why="Learning rate and clipping have another effect than intended.",
        similar="A loss that is summed over pixels is itself that large.",
        limits="Gradients that were clipped. With Adam and its kin it is a remark: they divide it out.",
        fix="Divide the loss by the number of micro-batches.",
        needs=(checks.REPLAY_RATIO, checks.REPLAY_MICRO_BATCHES, checks.REPLAY_COSINE, checks.REPLAY_MSE),
        detect=summed,
    ),
    warning_rule(
        "ACC002",
        "accumulation.short-window",
        "Updates from fewer micro-batches",
        what="The number of micro-batches per update changes, or only the last of them counts.",
        why="At the end of every epoch an update has another size, or computed gradients are lost.",
        limits="With Adam and its kin a changing number is a remark.",
        fix="Drop the rest of an epoch, or divide by the true number of samples.",
        needs=((checks.REPLAY_LAST_COSINE, checks.ACCUMULATION_MICRO_BATCHES, checks.ACCUMULATION_BACKWARDS),),
        detect=first_of(
            on_episode(
                last_alone,
                lambda run, _: (
                    "The gradient of an update is that of its last micro-batch alone, of "
                    f"{run.latest(checks.REPLAY_MICRO_BATCHES):.0f}: those of the others are cleared."
                ),
                latest={checks.REPLAY_LAST_COSINE: "below 0.95", checks.REPLAY_COSINE: "1"},
                fix=Fix("Clear gradients once per window, after optimizer.step(), and not before every micro-batch."),
            ),
            short_window,
        ),
    ),
)
