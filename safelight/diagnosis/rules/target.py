"""Targets that are not the declared prediction type."""

from __future__ import annotations

from functools import partial

import numpy as np

from safelight import checks
from safelight.diagnosis.rule import Detection, error
from safelight.diagnosis.run_history import Episode, RunHistory

WRONG = 0.05  # of the target's length
UNRELATED = 0.3  # cosine


def _kind(run: RunHistory) -> tuple[str, Episode, str, str | None] | None:
    """(which of the causes, when, the declared type, the type that it really is)."""
    declared = run.latest(checks.TARGET_DECLARED)
    if not np.isfinite(declared):
        return None
    name = checks.PREDICTIONS[int(declared)]
    episode = run.episode(checks.TARGET[name], lambda numbers: ~(numbers <= WRONG))
    if episode is None:
        return None
    at = partial(run.median, episode=episode)
    other = next((kind for kind, check in checks.TARGET.items() if at(check) <= WRONG), None)
    if other is not None:
        return "other-type", episode, name, other
    cosines = [check for check in checks.TARGET_COSINE.values() if len(run.steps(check))]  # older records lack some
    if cosines and all(abs(at(check)) < UNRELATED for check in cosines):
        return "fresh-noise", episode, name, None
    return "wrong", episode, name, None


def detect_kind(run: RunHistory, kind: str) -> Detection | None:
    found = _kind(run)
    if found is None or found[0] != kind:
        return None
    _, episode, name, other = found
    words = {
        "other-type": f"The model is declared to predict {name}, but its target is {other}. A sampler that relies on "
        "the declaration gets garbage from a good loss.",
        "fresh-noise": "The target is unrelated to the image and the noise in x_t: the loss cannot fall below the "
        "variance of the target.",
        "wrong": f"The target is not {name}: it differs by {run.latest(checks.TARGET[name]):.0%} of its length.",
    }
    evidence = tuple(
        run.evidence(each, "0" if declared == name else None, episode.last) for declared, each in checks.TARGET.items()
    )
    ruled_out = ("the network: it plays no part in this check",)
    return Detection(episode.first, words[kind], evidence, ruled_out, over=episode.over)


RULES = (
    error("TAR001", "target.other-type", "Another prediction type than declared")(
        what="The target is exactly the noise, the image or a velocity, but not the one that was declared.",
        why="The sampler turns the prediction into an image by the declared type: good loss, garbage samples.",
        similar="A target that is none of them is target.wrong.",
        limits="Loops that do not declare what they predict.",
        fix="Make the target, the scheduler's prediction_type and the declaration agree.",
        needs=(checks.TARGET_DECLARED, tuple(checks.TARGET.values())),
        detect=partial(detect_kind, kind="other-type"),
    ),
    error("TAR002", "target.fresh-noise", "A target that is not in the input")(
        what="The target is unrelated to image and noise, as if it were drawn anew.",
        why="There is nothing to learn: the loss stays at the variance of the target.",
        similar="A learning rate of 0, a dead output or a detached loss do too; their target is right.",
        fix="Use the noise that x_t was made with as the target.",
        needs=(checks.TARGET_DECLARED, tuple(checks.TARGET.values()), tuple(checks.TARGET_COSINE.values())),
        detect=partial(detect_kind, kind="fresh-noise"),
        explained_by="forward.noise-repeated",
    ),
    error("TAR003", "target.wrong", "A modified target")(
        what="The target is related to the declared one, but scaled, rotated or clamped.",
        why="The network learns something that the sampler does not undo.",
        similar="Another prediction type is reported as such.",
        limits="Changes of less than 5 %.",
        fix="epsilon: the noise; sample: x0; v_prediction: sqrt(a)·noise − sqrt(1 − a)·x0; flow: noise − x0.",
        needs=(checks.TARGET_DECLARED, tuple(checks.TARGET.values())),
        detect=partial(detect_kind, kind="wrong"),
        explained_by="forward.noise data.nonfinite scale.integer timesteps.shuffled timesteps.out-of-range",
    ),
)
