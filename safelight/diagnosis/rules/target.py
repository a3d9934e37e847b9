"""Targets that are not what the model is said to predict."""

from __future__ import annotations

import numpy as np

from safelight.config.tree import Prediction
from safelight.diagnosis.case import Case, Spell
from safelight.diagnosis.rule import Rule, Seen

KINDS: tuple[Prediction, ...] = ("epsilon", "sample", "v_prediction")  # told by their place: never reorder
WRONG = 0.05  # of the target's length
UNRELATED = 0.3  # cosine


def _kind(case: Case) -> tuple[str, Spell, str, str | None] | None:
    """(disease, when, the declared type, the type that it really is)."""
    declared = case.newest("target/declared")
    if not np.isfinite(declared):
        return None
    name = KINDS[int(declared)]
    spell = case.spell(f"target/{name}", lambda numbers: ~(numbers <= WRONG))
    if spell is None:
        return None

    def at(kind: str) -> float:
        steps, numbers = case.check(f"target/{kind}")
        return float(np.median(numbers[(steps >= spell.first) & (steps <= spell.last)]))

    other = next((kind for kind in KINDS if at(kind) <= WRONG), None)
    if other is not None:
        return "other-type", spell, name, other
    if all(abs(at(f"{kind}_cosine")) < UNRELATED for kind in KINDS):
        return "fresh-noise", spell, name, None
    return "wrong", spell, name, None


def _look(case: Case, disease: str) -> Seen | None:
    found = _kind(case)
    if found is None or found[0] != disease:
        return None
    _, spell, name, other = found
    words = {
        "other-type": f"The model is said to predict {name}, but its target is {other}. Whoever samples by the first "
        "will get garbage from a good loss.",
        "fresh-noise": "The target has nothing to do with the image or the noise in x_t: the loss cannot fall below "
        "its "
        "own variance.",
        "wrong": f"The target is not {name}: it differs by {case.newest(f'target/{name}'):.0%} of its length.",
    }
    evidence = tuple(case.evidence(f"target/{kind}", "0" if kind == name else None, spell.last) for kind in KINDS)
    return Seen(spell.first, words[disease], evidence, ("the network: it was not asked",), over=spell.over)


def look_other_type(case: Case) -> Seen | None:
    return _look(case, "other-type")


def look_fresh_noise(case: Case) -> Seen | None:
    return _look(case, "fresh-noise")


def look_wrong(case: Case) -> Seen | None:
    return _look(case, "wrong")


RULES = (
    Rule(
        code="TAR001",
        cause="target.other-type",
        title="Another prediction type than is declared",
        what="The target is exactly the noise, the image or the velocity, but not the one that was declared.",
        why="The sampler turns the prediction into an image by the declared type: good loss, garbage samples.",
        alike="A target that is none of the three is target.wrong.",
        misses="Loops that do not say what they predict.",
        fix="Make the target, the scheduler's prediction_type and what you declare agree.",
        look=look_other_type,
    ),
    Rule(
        code="TAR002",
        cause="target.fresh-noise",
        title="A target that is not in the input",
        what="The target is unrelated to image and noise, as if it were drawn anew.",
        why="There is nothing to learn: the loss stays at the variance of the target.",
        alike="A learning rate of nothing, a dead output or a detached loss keep the loss there too; their target is "
        "right.",
        misses="",
        fix="Use the noise that x_t was made with as the target.",
        look=look_fresh_noise,
        yields=("forward.noise-repeated",),
    ),
    Rule(
        code="TAR003",
        cause="target.wrong",
        title="A target that is changed",
        what="The target is related to the declared one, but scaled, turned or clamped.",
        why="The network learns something that the sampler does not undo.",
        alike="Another prediction type is told as such.",
        misses="Changes of less than 5 %.",
        fix="epsilon: the noise; sample: x0; v_prediction: sqrt(a)·noise − sqrt(1 − a)·x0.",
        look=look_wrong,
        yields=("forward.noise", "data.nonfinite", "scale.integer", "timesteps.shuffled", "timesteps.out-of-range"),
    ),
)
