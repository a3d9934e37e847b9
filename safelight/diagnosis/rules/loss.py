"""Losses that are not finite, or not of this prediction."""

from __future__ import annotations

import numpy as np

from safelight.diagnosis.case import Case, Spell, spell_of
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.rule import Rule, Seen
from safelight.vocabulary import CHECK, GRADIENT_NORM, LOSS, NONFINITE_PARAMETERS, REFUSED

ENOUGH = 8  # steps


def look_nonfinite(case: Case) -> Seen | None:
    """Exact: a number is finite or it is not. What fp16 does while it looks for its scale is no disease."""
    told = [note for note in case.events("refused") if not note.facts.get("overflow")]
    foreign = case.events("nonfinite")
    if not told and not foreign:
        return None
    first = min(note.step for note in (*told, *foreign))
    stops = case.events("stopped")
    steps, losses = case.series(LOSS.name)
    places = stops[0].facts.get("first_nonfinite") if stops else None
    names = next((n.facts.get("nonfinite_gradients") or n.facts.get("parameters") for n in (*told, *foreign)), None)
    evidence = [
        Evidence(REFUSED.name if told else NONFINITE_PARAMETERS.name, float(len(told) or len(foreign)), usual="0")
    ]
    if places:
        evidence.append(Evidence("first_nonfinite", str(places)))
    if names:
        evidence.append(Evidence("parameters", ", ".join(names)))
    number = len(told) or len(foreign)
    what = f"{number} update{'s' * (number != 1)} had a loss or a gradient that was not finite"
    acted = ", and were refused" if told else ""
    since = f"{what}{acted}, the first at step {first:,}"
    where = f". The first such value appeared in {places}" if places else ""
    last = max(note.step for note in (*told, *foreign))
    sound = steps[(steps > last) & np.isfinite(losses)]
    return Seen(
        severity="error" if stops or (foreign and not len(sound)) else "warning",
        step=first,
        confidence=1.0,
        summary=f"{since}{where}.",
        evidence=tuple(evidence),
        fix=Fix(
            "Look at the images and timesteps that the event names. If it happens at random steps, lower the learning "
            "rate or lengthen the warm-up; in fp16, use bf16.",
            safety="manual",
        ),
        ruled_out=("fp16 looking for its scale: those refusals are marked as overflow and left out",),
        over=int(sound[0]) if len(sound) else None,
    )


AGAINST, UNRELATED = -0.5, 0.1  # cosine with the gradient of the squared error; L1 and weighted losses have 0.5 to 1
SAME = 0.7  # the same of a loss that is the squared error: 1 in fp32, 0.99 in bf16, 0.89 where numbers are clipped
OVERFLOWS = 1e30  # a squared error of fp32 numbers
SIGNS = 0.9  # of the numbers have the same sign: 1 in sound gradients, also where numbers are clipped; else 0.5
PASSED = 24  # sound losses after one that was not: a weight that overflows would have come again
ENDLESS = 10.0  # times what a loss below 0 was at first
UNHEARD = 0.1  # of the samples; with a zero terminal SNR one timestep in a thousand may weigh nothing
LOW, SWING = 0.5, 0.7  # of sound weightings the first cosines are 0.8 to 1, and swings 0.2 to 0.3


def _replayed(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """(steps, cosines) of the replays in which there was a gradient to compare."""
    steps, cosines = case.check("replay/cosine")
    norms, own = case.check("replay/norm")[1], case.check("replay/own_norm")[1]
    there = (norms > 0) & (own > 0) & np.isfinite(cosines)
    return steps[there], cosines[there]


def _first(steps: np.ndarray) -> np.ndarray:
    """Of the replays before anything was learnt: later, weighted losses go their own ways."""
    return steps < (steps[0] + 3 if len(steps) else 0)


def is_plain(case: Case) -> bool:
    """Whether the loss that the loop tells is the squared error itself: then its gradient must be the replayed one."""
    told, errors = case.check("replay/told")[1], case.check("replay/error")[1]
    return bool(len(told)) and bool((np.abs(told - errors) <= 0.01 * np.abs(errors)).all())


def _is_error(case: Case, chosen: np.ndarray) -> np.ndarray:
    """Whether the loss that was told at a replay is the squared error, but for its sign."""
    steps, told = case.check("replay/told")
    errors = case.check("replay/error")[1]
    same = np.abs(np.abs(told) - errors) <= 0.01 * np.abs(errors)
    known = dict(zip(steps.tolist(), same.tolist(), strict=True))
    return np.array([known.get(step, False) for step in chosen.tolist()], bool)


def _look_below_zero(case: Case) -> Seen | None:
    """Where nothing but the loss is known: it is below 0 from the first step on, and grows without end."""
    steps, losses = case.series(LOSS.name)
    if len(losses) < 4 * ENOUGH or not (losses < 0).all():
        return None
    begin, end = float(np.median(losses[:ENOUGH])), float(np.median(losses[-ENOUGH:]))
    if not end < ENDLESS * begin:
        return None
    return Seen(
        int(steps[0]),
        f"The loss is below 0 at every step and went from {begin:.3g} to {end:.3g}: an error is never below 0, and a "
        "likelihood does not grow so. Its sign is turned.",
        (Evidence(LOSS.name, end, (int(steps[0]), int(steps[-1])), "above 0"),),
        confidence=0.95,
    )


def look_sign(case: Case) -> Seen | None:
    steps, cosines = _replayed(case)
    plain = _is_error(case, steps)  # then one look is enough
    asked = _first(steps) | plain
    against = cosines < AGAINST
    spell = spell_of(steps[plain], against[plain]) or spell_of(steps[asked], against[asked], 2)
    if spell is None:
        return _look_below_zero(case)
    return Seen(
        spell.first,
        "The gradient points the other way than that of the error: the training makes predictions worse on purpose.",
        (case.evidence("replay/cosine", "above 0.5", spell.last),),
        ("an optimizer that maximises: it gets the right gradient",),
        over=spell.over,
    )


def look_not_of_prediction(case: Case) -> Seen | None:
    steps, cosines = _replayed(case)
    plain = is_plain(case)
    asked = np.ones(len(steps), bool) if plain else _first(steps)
    low = (cosines >= AGAINST) & (cosines < (SAME if plain else UNRELATED))
    signs = dict(zip(*case.check("replay/signs"), strict=True))
    low &= np.array([signs.get(step, 0.0) < SIGNS for step in steps], bool)
    if plain:  # a single tensor that goes the other way
        worst = dict(zip(*case.check("replay/worst"), strict=True))
        low |= np.array([worst.get(step, 1.0) < AGAINST for step in steps], bool)
    spell = spell_of(steps[asked], low[asked], 2) or _of_nothing(case)
    if spell is None:
        return None
    return Seen(
        spell.first,
        "The gradient that the optimizer gets is not that of this prediction and this target: it is unrelated to it.",
        (case.evidence("replay/cosine", "above 0.5", spell.last),),
        over=spell.over,
    )


def _of_nothing(case: Case) -> Spell | None:
    """A gradient came out of the backward pass, and it is exactly 0 where that of the error is not."""
    steps, norms = case.check("replay/norm")
    own, came = case.check("replay/own_norm")[1], case.check("replay/came")[1]
    if len(came) < len(steps):
        return None
    return spell_of(steps, (norms == 0) & (own > 0) & (came[: len(steps)] == 0), 2)


def look_detached(case: Case) -> Seen | None:
    """The loss does not reach the network, or nothing calls backward()."""
    steps, norms = case.check("replay/norm")
    _, own = case.check("replay/own_norm")
    _, came = case.check("replay/came")
    if len(steps) and len(came) >= len(steps):
        came = came[: len(steps)]
        spell = spell_of(steps, ~(norms > 0) & (own > 0) & (came < 0))
        if spell is not None:
            return _detached(spell.first, f"though the error of the prediction has one of {float(own[-1]):.3g}")
    steps, norms = case.series(GRADIENT_NORM.name)
    if len(steps) <= ENOUGH or (norms != 0).any() or (case.check("sentinel/came")[1] > 0).any():
        return None
    return _detached(int(steps[0]), f"in any of {len(steps):,} steps")


def _detached(step: int, where: str) -> Seen:
    return Seen(
        step,
        f"No parameter had a gradient, {where}: the loss does not reach the network.",
        (Evidence(GRADIENT_NORM.name, 0.0, usual="above 0"),),
        ("a learning rate of 0: gradients would be there all the same",),
    )


def look_weight_nonfinite(case: Case) -> Seen | None:
    bad, _ = case.check("finite/loss")
    if not len(bad):
        return None
    before = {int(s) for name in ("x0", "noise", "x_t", "target", "pred") for s in case.check(f"finite/{name}")[0]}
    compared = {int(s) for s, error in zip(*case.check("loss/error"), strict=True) if error < OVERFLOWS}
    infinite = {int(s) for s in case.check("finite/loss_number")[0]}  # NaN may come from what was not shown
    alone = [int(step) for step in bad if int(step) not in before and int(step) in compared | infinite]
    steps, losses = case.series(LOSS.name)
    passed = len(alone) == 1 and int(np.isfinite(losses[steps > alone[0]]).sum()) >= PASSED
    if not alone or (passed and look_nonfinite(case) is not None):
        return None  # what comes once and never again is told as loss.nonfinite
    return Seen(
        alone[0],
        f"In {len(alone)} step{'s' * (len(alone) != 1)} the loss was not finite though prediction and target were: the "
        "loss itself, or its weights, divide by zero or overflow.",
        (Evidence(f"{CHECK.name}/finite/loss", 0.0, (alone[0], alone[-1]), "1"),),
        ("the network and the data: they were finite in the same step",),
    )


def look_shape(case: Case) -> Seen | None:
    if case.newest("loss/same_shape", 1.0) != 0:
        return None
    return Seen(
        case.asked("loss/same_shape"),
        "Prediction and target have different shapes: the loss compares each with all by broadcasting.",
        (case.evidence("loss/same_shape", "1"),),
    )


def _look_unheard(case: Case) -> Seen | None:
    spell = case.spell("answer/unheard", lambda shares: (shares > UNHEARD) & (shares < 1), 3)
    if spell is None:
        return None
    steps, shares = case.check("answer/unheard")
    share = float(np.median(shares[(steps >= spell.first) & (steps <= spell.last)]))
    return Seen(
        spell.first,
        f"To the answers for {share:.0%} of the samples no gradient comes at all: their weight in the loss is 0, and "
        "the network learns nothing from them.",
        (case.evidence("answer/unheard", "0", spell.last),),
        ("errors that are small: none is exactly 0",),
        over=spell.over,
    )


def look_weighting(case: Case) -> Seen | None:
    """Weights that leave a few samples of a batch to decide it: told over plain loss swings from batch to batch, or the
    gradient goes another way than that of the plain error at nearly every look. Exact where a weight is 0."""
    if (unheard := _look_unheard(case)) is not None:
        return unheard
    steps, cosines = _replayed(case)
    early = _first(steps)
    low = spell_of(steps[early], (cosines[early] >= UNRELATED) & (cosines[early] < LOW), 2)
    told, errors = case.check("loss/told")[1], case.check("loss/error")[1]
    sound = np.isfinite(told) & np.isfinite(errors) & (errors > 0) & (told > 0)
    ratios = told[sound] / errors[sound]
    swing = float(np.std(np.log(ratios))) if len(ratios) >= 8 else 0.0
    if is_plain(case) or (low is None and swing < SWING):
        return None
    return Seen(
        int(steps[0]) if low is None and len(steps) else (low.first if low is not None else 0),
        f"A few timesteps outweigh all others: the loss is {float(np.median(ratios)):.3g} times the plain error and "
        f"swings by a factor of {float(np.exp(swing)):.3g} from batch to batch; its gradient has a cosine of "
        f"{float(np.median(cosines)) if len(cosines) else 1.0:.2f} with the plain one.",
        (case.evidence("replay/cosine", "above 0.5"), Evidence("loss over error", swing, usual="below 0.5")),
        confidence=0.95,
    )


RULES = (
    Rule(
        code="LOS001",
        cause="loss.nonfinite",
        title="A loss or gradient that is not finite",
        what="NaN or infinity in the loss or in a gradient. Safelight's own trainer refuses such an update.",
        why="One such update makes every weight NaN; refused ones are steps that were not trained.",
        alike="fp16 overflows on purpose while it looks for its loss scale; those are not counted here (PRE001 tells "
        "when they never end). A NaN in the data comes back whenever that image is drawn: compare the samples of the "
        "events.",
        misses="Values that are finite and absurd.",
        fix="Take out the image, lower optimizer.lr, lengthen optimizer.warmup, use bf16 instead of fp16.",
        look=look_nonfinite,
        yields=(
            "data.nonfinite",
            "loss.weight",
            "loss.diverged",
            "lr.",
            "model.",
            "scale.",
            "precision.",
            "optimizer.",
            "forward.",
            "target.",
            "timesteps.",
            "schedule.",
        ),
    ),
    Rule(
        code="LOS002",
        cause="loss.detached",
        title="No gradient anywhere",
        what="The gradient of every parameter is exactly zero, or missing.",
        why="Nothing is learnt.",
        alike="With optimizer.no-update (OPT001) there are gradients and the weights do not follow them. Gradients "
        "that "
        "are cleared before the update did come out of the backward pass.",
        misses="A loss that reaches the network through a path that means nothing.",
        fix="Look for detach(), no_grad() or .data between the network and the loss, and for a missing backward().",
        look=look_detached,
        yields=(
            "model.zero-init",
            "model.frozen",
            "model.bounded",
            "optimizer.other",
            "loss.not-of",
            "optimizer.zeroed",
        ),
    ),
    Rule(
        code="LOS003",
        cause="loss.sign",
        title="The sign of the loss is turned",
        what="The gradient is opposite to that of the squared error of the same prediction.",
        why="Every update makes predictions worse.",
        alike="An optimizer that maximises gets the right gradient and goes the wrong way.",
        misses="",
        fix="Minimise the loss: no minus in front of it.",
        look=look_sign,
    ),
    Rule(
        code="LOS004",
        cause="loss.weight-nonfinite",
        title="A loss that is not finite by itself",
        what="Prediction and target are finite, and the loss is not.",
        why="One such step would make every weight NaN.",
        alike="Networks that overflow give predictions that are not finite.",
        misses="Loops that do not tell prediction and target. A weight so rare that it comes once in a run.",
        fix="Cap the weights: 1 / SNR is infinite where no signal is left.",
        look=look_weight_nonfinite,
        yields=("precision.transient", "lr.", "clipping.", "optimizer.", "data.nonfinite", "loss.sign"),
    ),
    Rule(
        code="LOS005",
        cause="loss.shape",
        title="Prediction and target of different shapes",
        what="The loss broadcasts one against the other.",
        why="Every prediction is compared with every target: the best answer is their mean.",
        alike="",
        misses="",
        fix="Make both [batch, channels, height, width]; look for a squeeze().",
        look=look_shape,
    ),
    Rule(
        code="LOS006",
        cause="loss.not-of-prediction",
        title="A gradient of something else",
        what="The gradient is unrelated to that of the squared error of this prediction and this target.",
        why="The network learns something else than it is watched for.",
        alike="L1, Huber and weighted losses point in nearly the same direction.",
        misses="Losses that are added to the right one.",
        fix="Compare what goes into the loss with what goes into the model: batches, targets, masks.",
        look=look_not_of_prediction,
        yields=(
            "accumulation.short",
            "loss.shape",
            "loss.sign",
            "optimizer.no-zero",
            "target.",
            "data.nonfinite",
            "precision.",
            "model.bounded",
            "model.zero-init",
        ),
    ),
    Rule(
        code="LOS008",
        cause="loss.weighting",
        title="Weights that leave little of the batch",
        what="The loss weighs a few timesteps so much that they decide every update.",
        why="All other noise levels are hardly trained, and updates are as noisy as those of a batch of one.",
        alike="min-SNR weights stay within a factor of the usual.",
        misses="Wrong weights that are mild.",
        fix="Cap the weights: min(SNR, 5), divided by SNR for epsilon and by SNR + 1 for v.",
        severity="warning",
        look=look_weighting,
        yields=(
            "loss.sign",
            "loss.not-of",
            "loss.weight-nonfinite",
            "target.",
            "loss.shape",
            "precision.",
            "optimizer.",
            "timesteps.",
            "forward.",
        ),
    ),
)
