"""Losses that are not finite, or not of this prediction."""

from __future__ import annotations

import numpy as np

from safelight import checks
from safelight.diagnosis.definitions import DIVERGED
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.loss_shapes import is_above
from safelight.diagnosis.rule import Detection, error_rule, first_of, on_episode, on_latest, warning_rule
from safelight.diagnosis.run_history import Episode, RunHistory, episode_of, name_of, running_median
from safelight.diagnosis.spacing import LogNeed
from safelight.vocabulary import GRADIENT_NORM, LEARNING_RATE, LOSS, NONFINITE_PARAMETERS, REFUSED

MIN_STEPS = 8
OPPOSITE_COSINE = -0.5  # cosine with the gradient of the squared error
UNRELATED_COSINE = 0.1  # L1 and weighted losses have 0.5 to 1
# The same of a loss that is the squared error: 1 in fp32, 0.99 in bf16, 0.89 where values are clipped
SAME_COSINE = 0.7
OVERFLOWING_ERROR = 1e30  # a squared error of fp32 numbers
SIGNS = 0.9  # of the values have the same sign: 1 in healthy gradients, also where values are clipped; else 0.5
MIN_FINITE_AFTER = 24  # finite losses after one that was not: a weight that overflows would have come again
ENDLESS_FACTOR = 10.0  # times what a loss below 0 was at first
MAX_UNHEARD_SHARE = 0.1  # of the samples; with a zero terminal SNR one timestep in a thousand may have a weight of 0
WINDOW = 8
RISE_FACTOR = 10.0  # times the best and the first loss
TARGET_GROWTH_FACTOR = 4.0  # times the first mean square of the targets, which is the same in every healthy run
LONG_STEPS = 100  # steps after which a rate should have begun to decay
CONSTANT_TOLERANCE = 1e-3  # relative change of a learning rate that does not decay
LOW_COSINE, MAX_SWING = 0.5, 0.7  # healthy weightings have first cosines of 0.8 to 1, and swings of 0.2 to 0.3


def nonfinite(run: RunHistory) -> Detection | None:
    """Exact: a number is finite or it is not. Overflows of fp16 during the search for a loss scale do not count."""
    refused = [note for note in run.events("refused") if not note.facts.get("overflow")]
    foreign = run.events("nonfinite")
    notes = (*refused, *foreign)
    if not notes:
        return None
    first, last = min(note.step for note in notes), max(note.step for note in notes)
    stops = run.events("stopped")
    steps, losses = run.series(LOSS)
    places = stops[0].facts.get("first_nonfinite") if stops else None
    names = next((n.facts.get("nonfinite_gradients") or n.facts.get("parameters") for n in notes), None)
    number = len(refused) or len(foreign)
    signal = REFUSED if refused else NONFINITE_PARAMETERS
    named = {"first_nonfinite": str(places or ""), "parameters": ", ".join(names or ())}
    what = f"{number} update{'s' * (number != 1)} had a loss or a gradient that was not finite"
    acted = ", and were refused" if refused else ""
    where = f". The first such value appeared in {places}" if places else ""
    finite = steps[(steps > last) & np.isfinite(losses)]
    return Detection(
        first,
        f"{what}{acted}, the first at step {first:,}{where}.",
        (
            Evidence(signal.name, float(number), healthy_range="0"),
            *(Evidence(name, words) for name, words in named.items() if words),
        ),
        ("fp16 searching for its loss scale: those updates are marked as overflow and not counted",),
        severity="error" if stops or (foreign and not len(finite)) else "warning",
        ended_at=int(finite[0]) if len(finite) else None,
    )


def _replayed(run: RunHistory) -> tuple[np.ndarray, np.ndarray]:
    """(steps, cosines) of the replays that had a gradient to compare."""
    steps, cosines = run.series(checks.REPLAY_COSINE)
    norms, own = run.at(checks.REPLAY_NORM, steps), run.at(checks.REPLAY_MSE_NORM, steps)
    there = (norms > 0) & (own > 0) & np.isfinite(cosines)
    return steps[there], cosines[there]


def _first(steps: np.ndarray) -> np.ndarray:
    """The replays before anything was learnt: later, weighted losses diverge from the plain one."""
    return steps < (steps[0] + 3 if len(steps) else 0)


def is_plain(run: RunHistory) -> bool:
    """Whether the loss that the loop passes is the squared error: then its gradient must be the replayed one."""
    steps, losses = run.series(checks.REPLAY_LOSS)
    return len(steps) > 0 and bool(_is_error(run, steps, losses).all())


def _is_error(run: RunHistory, steps: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """Whether the losses of these replays are the squared errors."""
    errors = run.at(checks.REPLAY_ERROR, steps)
    return np.abs(losses - errors) <= 0.01 * np.abs(errors)


def below_zero(run: RunHistory) -> Detection | None:
    """Where only the loss is known: it is below 0 from the first step on, and falls without bound."""
    steps, losses = run.series(LOSS)
    if len(losses) < 4 * MIN_STEPS or not (losses < 0).all():
        return None
    begin, end = float(np.median(losses[:MIN_STEPS])), float(np.median(losses[-MIN_STEPS:]))
    if not end < ENDLESS_FACTOR * begin:
        return None
    return Detection(
        int(steps[0]),
        f"The loss is below 0 at every step and went from {begin:.3g} to {end:.3g}: an error is never below 0, and a "
        "likelihood does not grow like this. Its sign is reversed.",
        (Evidence(LOSS.name, end, (int(steps[0]), int(steps[-1])), "above 0"),),
        confidence=0.95,
    )


def opposite(run: RunHistory) -> Episode | None:
    steps, cosines = _replayed(run)
    plain = _is_error(run, steps, np.abs(run.at(checks.REPLAY_LOSS, steps)))  # its sign aside; then one look is enough
    early = _first(steps) | plain
    against = cosines < OPPOSITE_COSINE
    return episode_of(steps[plain], against[plain]) or episode_of(steps[early], against[early], 2)


def unrelated(run: RunHistory) -> Episode | None:
    if not len(run.steps(checks.REPLAY_COSINE)) or not len(run.steps(checks.REPLAY_ERROR)):
        return None
    steps, cosines = _replayed(run)
    plain = is_plain(run)
    early = np.ones(len(steps), bool) if plain else _first(steps)
    low = (cosines >= OPPOSITE_COSINE) & (cosines < (SAME_COSINE if plain else UNRELATED_COSINE))
    low &= run.at(checks.REPLAY_SIGNS, steps, 0.0) < SIGNS
    if plain:  # a single tensor that goes the other way
        low |= run.at(checks.REPLAY_WORST, steps, 1.0) < OPPOSITE_COSINE
    return episode_of(steps[early], low[early], 2) or _without_gradient(run, came=True)


def _without_gradient(run: RunHistory, *, came: bool) -> Episode | None:
    """The gradient is 0 where that of the error is not: it came out of the backward pass as exactly 0, at two looks, or
    it never came."""
    steps, norms = run.series(checks.REPLAY_NORM)
    largest = run.at(checks.REPLAY_SAMPLE_GRADIENT, steps)  # below 0: none came
    zero = (norms == 0) & (largest == 0) if came else ~(norms > 0) & (largest < 0)
    return episode_of(steps, zero & (run.at(checks.REPLAY_MSE_NORM, steps) > 0), 2 if came else 1)


def detached(run: RunHistory) -> Detection | None:
    """The loss does not reach the network, or backward() is never called."""
    episode = _without_gradient(run, came=False)
    if episode is not None:
        own = run.latest(checks.REPLAY_MSE_NORM)
        return _detached(episode.first, f"though the error of the prediction has one of {own:.3g}")
    steps, norms = run.series(GRADIENT_NORM)
    if len(steps) <= MIN_STEPS or (norms != 0).any() or (run.numbers(checks.SAMPLE_PARAMETER_BACKWARD) > 0).any():
        return None
    return _detached(int(steps[0]), f"in any of {len(steps):,} steps")


def _detached(step: int, where: str) -> Detection:
    return Detection(
        step,
        f"No parameter had a gradient, {where}: the loss does not reach the network.",
        (Evidence(GRADIENT_NORM.name, 0.0, healthy_range="above 0"),),
        ("a learning rate of 0: there would be gradients",),
    )


def weight_nonfinite(run: RunHistory) -> Detection | None:
    bad = run.steps(checks.NONFINITE["loss"])
    if not len(bad):
        return None
    before = {int(s) for name, check in checks.NONFINITE.items() if name != "loss" for s in run.steps(check)}
    compared = {int(s) for s, error in zip(*run.series(checks.LOSS_MSE), strict=True) if error < OVERFLOWING_ERROR}
    infinite = {int(s) for s in run.steps(checks.NONFINITE_LOSS_NUMBER)}  # NaN may come from what was not shown
    alone = [int(step) for step in bad if int(step) not in before and int(step) in compared | infinite]
    steps, losses = run.series(LOSS)
    passed = len(alone) == 1 and int(np.isfinite(losses[steps > alone[0]]).sum()) >= MIN_FINITE_AFTER
    if not alone or (passed and nonfinite(run) is not None):
        return None  # what comes once is reported as loss.nonfinite
    return Detection(
        alone[0],
        f"In {len(alone)} step{'s' * (len(alone) != 1)} the loss was not finite though prediction and target were: the "
        "loss itself, or its weights, divide by zero or overflow.",
        (Evidence(name_of(checks.NONFINITE["loss"]), 0.0, (alone[0], alone[-1]), "1"),),
        ("the network and the data: they were finite in the same step",),
    )


weights_of_zero = on_episode(  # exact
    lambda run: run.episode(checks.ANSWER_UNHEARD, lambda shares: (shares > MAX_UNHEARD_SHARE) & (shares < 1), 3),
    lambda run, episode: (
        f"{run.median(checks.ANSWER_UNHEARD, episode):.0%} of the samples get no gradient at all: "
        "their weight in the loss is 0, and the network learns nothing from them."
    ),
    "errors that are small: none is exactly 0",
    evidence={checks.ANSWER_UNHEARD: "0"},
)


def few_decide(run: RunHistory) -> Detection | None:
    """Weights that let a few samples of a batch decide it: the loss over the plain error swings from batch to batch, or
    its gradient differs from the plain one at nearly every look."""
    steps, cosines = _replayed(run)
    early = _first(steps)
    low = episode_of(steps[early], (cosines[early] >= UNRELATED_COSINE) & (cosines[early] < LOW_COSINE), 2)
    places, losses = run.series(checks.LOSS_REPORTED)
    errors = run.at(checks.LOSS_MSE, places)
    healthy = np.isfinite(losses) & np.isfinite(errors) & (errors > 0) & (losses > 0)
    ratios = losses[healthy] / errors[healthy]
    ratio = float(np.median(ratios)) if len(ratios) else 1.0
    # Of neighbours: a loss that becomes another one once and for all does not swing.
    swing = float(np.std(np.diff(np.log(ratios)))) / 2**0.5 if len(ratios) >= 8 else 0.0
    if is_plain(run) or (low is None and swing < MAX_SWING):
        return None
    return Detection(
        int(steps[0]) if low is None and len(steps) else (low.first if low is not None else 0),
        f"A few timesteps outweigh all others: the loss is {ratio:.3g} times the plain error and "
        f"swings by a factor of {float(np.exp(swing)):.3g} from batch to batch; its gradient has a cosine of "
        f"{float(np.median(cosines)) if len(cosines) else 1.0:.2f} with the plain one.",
        (
            run.evidence(checks.REPLAY_COSINE, "above 0.5"),
            Evidence("loss over error", swing, healthy_range="below 0.5"),
        ),
        confidence=0.95,
    )


def _rising(run: RunHistory) -> Detection | None:
    """By the loss itself: it is many times what it was at first and at its best, and stays there."""
    steps, losses = run.series(LOSS)
    if len(losses) < 4 * WINDOW or not (losses[np.isfinite(losses)] > 0).all():
        return None
    losses = np.nan_to_num(losses, nan=np.inf)
    smooth = running_median(losses, WINDOW)
    # A running mean begins with the loss of one batch, which may be far too low.
    is_smoothed = run.spacing is not None and not run.spacing.single
    best, begin = float(smooth.min()), float(smooth[: len(smooth) // 4].max() if is_smoothed else smooth[0])
    if not smooth[-1] > RISE_FACTOR * max(best, begin):
        return None
    place = WINDOW - 1 + int(np.flatnonzero(smooth <= RISE_FACTOR * max(best, begin))[-1])
    if not is_above(losses, min(place, len(losses) - WINDOW)):
        return None  # batches of one image: eight of them may well have ten times the loss of others
    first, targets = int(steps[place]), _growth_of_targets(run)
    return Detection(
        first,
        f"The loss is {float(smooth[-1]):.3g}; it began at {begin:.3g} and had been {best:.3g}. The training has "
        "diverged"
        + (f", and the targets have grown {targets:.3g} times with it." if targets >= TARGET_GROWTH_FACTOR else "."),
        (Evidence(LOSS.name, float(smooth[-1]), (first, int(steps[-1]))),),
        ("hard batches: it stays there",),
        confidence=0.99,
        fix=_bootstrapped() if targets >= TARGET_GROWTH_FACTOR else _return(run),
    )


def _growth_of_targets(run: RunHistory) -> float:
    """Their mean square over that of the first steps; 1 where it is not known."""
    squares = run.numbers(checks.LOSS_ZERO_MSE)
    is_enough = len(squares) >= 3 * WINDOW
    return float(np.median(squares[-WINDOW:]) / max(float(np.median(squares[:WINDOW])), 1e-12)) if is_enough else 1.0


def _bootstrapped() -> Fix:
    return Fix(
        "If the targets come from the network itself or its EMA (consistency, distillation): stop their gradient, take "
        "them from an EMA that changes more slowly, and lower optimizer.lr. If not, check what scales them."
    )


def _return(run: RunHistory) -> Fix | None:
    """None if the rule's own fix says all."""
    rates = run.numbers(LEARNING_RATE)
    if len(rates) <= LONG_STEPS or not is_constant(rates):
        return None
    return Fix(
        f"Return to the last good checkpoint, and lower optimizer.lr: it was {float(rates[-1]):.2g} until the end. "
        "Let it decay."
    )


def is_constant(rates: np.ndarray) -> bool:
    """Whether a rate does not decay in its later half."""
    late = rates[len(rates) // 2 :]
    return len(late) > 1 and bool(np.ptp(late) <= CONSTANT_TOLERANCE * late.max())


def diverged(run: RunHistory) -> Detection | None:
    steps, errors = run.series(checks.LOSS_MSE)
    zeros = run.numbers(checks.LOSS_ZERO_MSE)
    if not len(steps) or len(zeros) != len(steps):
        return _rising(run)
    if len(steps) < 3 * WINDOW:
        return None
    ratios = errors / np.maximum(zeros, 1e-12)
    smooth = running_median(ratios, WINDOW)
    best = np.minimum.accumulate(smooth)
    bad = ~(smooth < DIVERGED.zero_ratio) & ~(smooth < DIVERGED.best_ratio * best)
    if not bad[-1]:  # targets that grow with the error hide it
        return _rising(run) if _growth_of_targets(run) >= TARGET_GROWTH_FACTOR else None
    first = int(steps[WINDOW - 1 + np.flatnonzero(~bad)[-1]]) if (~bad).any() else int(steps[0])
    return Detection(
        first,
        f"The error is {float(smooth[-1]):.3g} times that of a model which always predicts 0; it had been "
        f"{float(best[-1]):.3g}. The training has diverged.",
        (Evidence(name_of(checks.LOSS_MSE), float(errors[-1]), (first, int(steps[-1]))),),
        confidence=0.99,
        fix=_return(run),
    )


RULES = (
    error_rule(
        "LOS001",
        "loss.nonfinite",
        "A loss or gradient that is not finite",
        what="NaN or infinity in the loss or in a gradient. Safelight's own trainer refuses such an update.",
        why="One such update makes every weight NaN; refused updates are steps that were not trained.",
        similar="fp16 overflows on purpose while it searches for its loss scale; those are not counted (PRE001 reports "
        "them if they never end). A NaN in the data comes back whenever that image is drawn: compare the samples of "
        "the events.",
        limits="Values that are finite and far too large.",
        fix="Check the images and timesteps that the event names. If it happens at random steps, lower the learning "
        "rate, lengthen the warm-up or clip gradients by their norm; in fp16, use bf16. In a loss or layer of your "
        "own, look for log(0), a division by zero and the root of 0.",
        detect=nonfinite,
        logs=LogNeed(),
        explained_by="data.nonfinite loss.weight loss.diverged lr. model. scale. precision. optimizer. forward. "
        "target. timesteps. schedule.",
    ),
    error_rule(
        "LOS002",
        "loss.detached",
        "No gradient anywhere",
        what="The gradient of every parameter is exactly zero, or missing.",
        why="Nothing is learnt.",
        similar="With optimizer.no-update (OPT001) there are gradients and the weights do not follow them. Gradients "
        "that are cleared before the update did come out of the backward pass.",
        limits="A loss that reaches the network through a meaningless path.",
        fix="Look for detach(), no_grad() or .data between the network and the loss, and for a missing backward().",
        needs=((GRADIENT_NORM, checks.REPLAY_MSE_NORM),),
        detect=detached,
        logs=LogNeed(MIN_STEPS + 1, of=GRADIENT_NORM),
        explained_by="model.zero-init model.frozen model.bounded optimizer.other loss.not-of optimizer.zeroed",
    ),
    error_rule(
        "LOS003",
        "loss.sign",
        "The sign of the loss is reversed",
        what="The gradient is opposite to that of the squared error of the same prediction.",
        why="Every update makes predictions worse.",
        similar="An optimizer that maximises gets the right gradient and goes the wrong way.",
        fix="Minimise the loss: no minus in front of it.",
        needs=((checks.REPLAY_COSINE, LOSS),),
        detect=first_of(
            on_episode(
                opposite,
                "The gradient is opposite to that of the error: the training makes predictions worse.",
                "an optimizer that maximises: it gets the right gradient",
                evidence={checks.REPLAY_COSINE: "above 0.5"},
            ),
            below_zero,
        ),
        logs=LogNeed(4 * MIN_STEPS),
    ),
    error_rule(
        "LOS004",
        "loss.weight-nonfinite",
        "A loss that is not finite by itself",
        what="Prediction and target are finite, and the loss is not.",
        why="One such step would make every weight NaN.",
        similar="Networks that overflow give predictions that are not finite.",
        limits="Loops that do not pass prediction and target. A weight so rare that it comes once in a run.",
        fix="Cap the weights: 1 / SNR is infinite where no signal is left. In a loss of your own, look for log(0) and "
        "a division by zero, and add a small number.",
        needs=(checks.NONFINITE["loss"],),
        detect=weight_nonfinite,
        explained_by="precision.transient lr. clipping. optimizer. data.nonfinite loss.sign",
    ),
    error_rule(
        "LOS005",
        "loss.shape",
        "Prediction and target of different shapes",
        what="The loss broadcasts one against the other.",
        why="Every prediction is compared with every target: the best prediction is their mean.",
        fix="Make both [batch, channels, height, width]; look for a squeeze().",
        needs=(checks.LOSS_SAME_SHAPE,),
        detect=on_latest(
            {checks.LOSS_SAME_SHAPE: "1"},
            lambda flag: flag == 0,
            "Prediction and target have different shapes: the loss compares each with all by broadcasting.",
        ),
    ),
    error_rule(
        "LOS006",
        "loss.not-of-prediction",
        "A gradient of something else",
        what="The gradient is unrelated to that of the squared error of this prediction and this target.",
        why="The network learns something else than what is monitored.",
        similar="L1, Huber and weighted losses point in nearly the same direction.",
        limits="Losses that are added to the right one.",
        fix="Compare what goes into the loss with what goes into the model: batches, targets, masks.",
        needs=(checks.REPLAY_COSINE, checks.REPLAY_NORM, checks.REPLAY_MSE_NORM, checks.REPLAY_ERROR),
        detect=on_episode(
            unrelated,
            "The gradient that the optimizer gets is unrelated to this prediction and this target.",
            evidence={checks.REPLAY_COSINE: "above 0.5"},
        ),
        explained_by="accumulation.short loss.shape loss.sign optimizer.no-zero target. data.nonfinite precision. "
        "model.bounded model.zero-init",
    ),
    warning_rule(
        "LOS008",
        "loss.weighting",
        "Weights that ignore most of the batch",
        what="The loss weighs a few timesteps so much that they decide every update.",
        why="All other noise levels are hardly trained, and updates are as noisy as those of a batch of one.",
        similar="min-SNR weights stay within a factor of the usual.",
        limits="Wrong weights that are mild.",
        fix="Cap the weights: min(SNR, 5), divided by SNR for epsilon and by SNR + 1 for v.",
        needs=((checks.ANSWER_UNHEARD, checks.LOSS_REPORTED, checks.REPLAY_COSINE),),
        detect=first_of(weights_of_zero, few_decide),
        explained_by="loss.sign loss.not-of loss.weight-nonfinite target. loss.shape precision. optimizer. timesteps. "
        "forward.",
    ),
    error_rule(
        "LOS007",
        "loss.diverged",
        "A training that diverges",
        what="The error is several times that of a model that always predicts 0, and had been far better; or the loss "
        "is ten times what it was at first, and targets that the network makes itself have grown with it.",
        why="Weights grow without bound.",
        similar="A single spike is over within a few steps. Images of another range raise the loss as well.",
        limits="A rise that stays below the zero predictor. By the loss alone: less than ten times the first loss.",
        fix="Return to the last good checkpoint, lower optimizer.lr, lengthen optimizer.warmup.",
        needs=((checks.LOSS_MSE, LOSS),),
        detect=diverged,
        logs=LogNeed(4 * WINDOW),
        explained_by="*",
    ),
)
