"""Targets that are not the declared prediction type."""

from __future__ import annotations

from functools import partial

import numpy as np

from safelight import checks
from safelight.diagnosis.finding import Fix
from safelight.diagnosis.rule import Detection, Detector, error_rule, on_latest, warning_rule
from safelight.diagnosis.run_history import Episode, RunHistory

WRONG = 0.05  # of the target's length
UNRELATED_COSINE = 0.3  # cosine
NOT_THE_NETWORK = ("the network: it plays no part in this check",)


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
    if cosines and all(abs(at(check)) < UNRELATED_COSINE for check in cosines):
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
    return Detection(episode.first, words[kind], evidence, NOT_THE_NETWORK, ended_at=episode.ended_at)


PREDICTION_OF_ROW = {"epsilon": "epsilon", "sample": "sample", "v": "v_prediction"}


def other_type(run: RunHistory) -> Detection | None:
    """Than what is declared; or, as a warning, than what the scheduler of the loop is made for: nothing shows that it
    draws the samples."""
    if (declared := detect_kind(run, "other-type")) is not None:
        return declared
    place = run.latest(checks.TARGET_OF_SCHEDULER)
    target = PREDICTION_OF_ROW.get(_row(run.latest(checks.MIXTURE_ROW, -2)))
    if not np.isfinite(place) or target is None or target == (name := checks.PREDICTIONS[int(place)]):
        return None
    return Detection(
        int(run.steps(checks.MIXTURE_ROW)[0]),
        f"The scheduler that noises the images has prediction_type={name!r}, but the target is {target}. A pipeline "
        "that samples with this scheduler gets garbage from a good loss.",
        (run.evidence(checks.TARGET_OF_SCHEDULER), run.evidence(checks.MIXTURE_ROW)),
        NOT_THE_NETWORK,
        severity="warning",
    )


ANOTHER = 0.3  # of x_t or the target; input perturbation leaves 0.1, anything in bf16 0.004
NOISE = (2.6, 3.4)  # kurtosis of a draw of noise, by the median over samples
WHITE = 0.1  # correlation of neighbours in a draw of noise


def other_noise(run: RunHistory) -> Detection | None:
    """Where nothing is declared: what is left of the target beside x0 and noise, or of x_t, is itself a draw of noise.
    What a teacher answers, as in distillation, is smooth."""
    places = checks.MIXTURE_OF_TARGET, checks.MIXTURE_OF_INPUT
    sick = [place for place in places if _is_noise(run, *place)]
    if len(sick) != 1 or run.latest((places[0] if sick[0] is places[1] else places[1])[0], 1.0) > WRONG:
        return None
    share, kurtosis, neighbours = sick[0]
    one, other = ("the target", "x_t") if sick[0] is places[0] else ("x_t", "the target")
    return Detection(
        int(run.steps(share)[0]),
        f"{run.latest(share):.0%} of {one} is noise that is not the noise in {other}: the network cannot know one from "
        "the other, and the loss cannot fall below its variance.",
        (run.evidence(share, "0"), run.evidence(kurtosis, "3: noise"), run.evidence(neighbours, "0: noise")),
        NOT_THE_NETWORK,
    )


def _is_noise(
    run: RunHistory, share: checks.ProbeReading, kurtosis: checks.ProbeReading, neighbours: checks.ProbeReading
) -> bool:
    is_normal = NOISE[0] < run.latest(kurtosis) < NOISE[1]
    return run.latest(share, 0.0) > ANOTHER and is_normal and abs(run.latest(neighbours)) < WHITE


def against_time(run: RunHistory) -> Detection | None:
    """A velocity is the derivative of x_t by the time that the network is shown."""
    process, row, time = (run.latest(check, -2) for check in MIXTURE)
    if process != checks.PROCESSES.index("flow") or abs(time) != 1:
        return None
    velocity = {"flow": 1, "-flow": -1}.get(_row(row))
    if velocity is None or velocity == time:
        return None
    rises = "rises" if time > 0 else "falls"
    target, right = ("noise − x0", "x0 − noise") if velocity > 0 else ("x0 − noise", "noise − x0")
    return Detection(
        int(run.steps(checks.MIXTURE_ROW)[0]),
        f"The time that the network is shown {rises} with the noise, so the velocity of x_t is {right}; the target is "
        f"{target}. A sampler that integrates it walks away from the images. Either its sign or the two ends of the "
        "interpolation are swapped.",
        tuple(run.evidence(check) for check in MIXTURE),
        NOT_THE_NETWORK,
    )


def unfit(process: str, row: str, words: str) -> Detector:
    """The target of one process on the x_t of another."""

    def detect(run: RunHistory) -> Detection | None:
        seen, kind = run.latest(checks.MIXTURE_PROCESS, -2), _row(run.latest(checks.MIXTURE_ROW, -2))
        if seen != checks.PROCESSES.index(process) or kind.removeprefix("-") != row:
            return None
        evidence = run.evidence(checks.MIXTURE_PROCESS), run.evidence(checks.MIXTURE_ROW)
        return Detection(int(run.steps(checks.MIXTURE_ROW)[0]), words, evidence, NOT_THE_NETWORK)

    return detect


of_another_process = unfit(
    "vp",
    "flow",
    "The target is a velocity of flow matching, a difference of noise and x0, but x_t is noised as in DDPM, with "
    "squares that add up to 1. A sampler of flows expects x_t = (1 − t)·x0 + t·noise.",
)
not_a_velocity = unfit(
    "flow",
    "epsilon",
    "x_t is that of flow matching, (1 − t)·x0 + t·noise, but the target is the noise alone and not the velocity "
    "noise − x0. A sampler of flows integrates a velocity, and at t = 1 the noise says nothing of the image.",
)


def scaled(run: RunHistory) -> Detection | None:
    if (swapped := run.latest(checks.MIXTURE_TARGET_SWAPPED, -1)) >= 0:
        return _swapped(run, checks.SWAPPED_TARGETS[int(swapped)])
    row, factor = _row(run.latest(checks.MIXTURE_ROW, -2)), run.latest(checks.MIXTURE_TARGET_SCALE)
    if row in ("-epsilon", "-sample", "-edm"):
        words, check = f"the opposite of {row[1:]}: every sampler takes it for the other sign.", checks.MIXTURE_ROW
    elif not row and np.isfinite(factor):
        words, check = f"{factor:.3g} times a target that samplers know.", checks.MIXTURE_TARGET_SCALE
    else:
        return None
    return Detection(
        int(run.steps(check)[0]),
        f"The target is {words}",
        (run.evidence(check),),
        NOT_THE_NETWORK,
    )


def _swapped(run: RunHistory, formula: str) -> Detection:
    is_flow = run.latest(checks.MIXTURE_PROCESS) == checks.PROCESSES.index("flow")
    usual = "noise − x0" if is_flow else "a·noise − s·x0, v,"
    if formula == "a·x0 + s·noise":
        words = "x_t itself: the network is asked for what it is shown, and learns nothing of the image."
    else:
        words = (
            f"{formula}, where x_t is a·x0 + s·noise. No sampler expects that: {usual} with signs or factors swapped."
        )
    return Detection(
        int(run.steps(checks.MIXTURE_TARGET_SWAPPED)[0]),
        f"The target is {words}",
        (run.evidence(checks.MIXTURE_TARGET_SWAPPED),),
        NOT_THE_NETWORK,
        severity="error",
        fix=Fix(
            "The target of flow matching is noise − x0." if is_flow else "v is a·noise − s·x0; else predict the noise."
        ),
    )


def other_sigma_data(run: RunHistory) -> Detection | None:
    seen, asked = run.latest(checks.MIXTURE_SIGMA_DATA), run.latest(checks.MIXTURE_TARGET_SIGMA_DATA)
    if not abs(np.log(asked / seen)) > SIGMAS_APART:
        return None
    return Detection(
        int(run.steps(checks.MIXTURE_TARGET_SIGMA_DATA)[0]),
        f"c_in is computed with sigma_data = {seen:.3g}, the target with {asked:.3g}. EDM's four factors belong to one "
        "sigma_data, and a sampler has one for all.",
        (run.evidence(checks.MIXTURE_SIGMA_DATA), run.evidence(checks.MIXTURE_TARGET_SIGMA_DATA)),
        NOT_THE_NETWORK,
    )


def _row(place: float) -> str:
    return checks.TARGET_ROWS[int(place)] if place >= 0 else ""


SIGMAS_APART = 0.02  # in logarithms; they are fitted to 0.001
NO_SAMPLER = "Loops that do not pass x0, noise and target."
MIXTURE = (checks.MIXTURE_PROCESS, checks.MIXTURE_ROW, checks.MIXTURE_TIME)
RULES = (
    warning_rule(
        "TAR010",
        "target.with-gradient",
        "Gradients flow through the target",
        what="The target of the loss is computed with gradients: of the network itself, or of something else.",
        why="The network learns to move its target towards its prediction, and both collapse to one answer.",
        similar="An encoder that is trained together with the network gives such a target on purpose.",
        limits="Targets that are not passed to watch.step.",
        fix="target.detach(), or torch.no_grad() around the teacher.",
        needs=(checks.TARGET_WITH_GRADIENT,),
        detect=on_latest(
            {checks.TARGET_WITH_GRADIENT: "0"},
            lambda flag: flag == 1,
            "The target requires a gradient: the loss also moves the target towards the prediction.",
        ),
    ),
    error_rule(
        "TAR001",
        "target.other-type",
        "Another prediction type than declared",
        what="The target is exactly the noise, the image or a velocity, but not the one that was declared. As a "
        "warning: not the prediction_type of the diffusers scheduler whose table the loop reads.",
        why="The sampler turns the prediction into an image by the declared type: good loss, garbage samples.",
        similar="A target that is none of them is target.wrong.",
        limits="Loops that neither declare what they predict nor noise with a scheduler of diffusers.",
        fix="Make the target, the scheduler's prediction_type and the declaration agree.",
        needs=((checks.TARGET_DECLARED, checks.TARGET_OF_SCHEDULER), (*checks.TARGET.values(), checks.MIXTURE_ROW)),
        detect=other_type,
    ),
    error_rule(
        "TAR002",
        "target.fresh-noise",
        "A target that is not in the input",
        what="The target is unrelated to image and noise, as if it were drawn anew.",
        why="There is nothing to learn: the loss stays at the variance of the target.",
        similar="A learning rate of 0, a dead output or a detached loss do too; their target is right.",
        fix="Use the noise that x_t was made with as the target.",
        needs=(checks.TARGET_DECLARED, tuple(checks.TARGET.values()), tuple(checks.TARGET_COSINE.values())),
        detect=partial(detect_kind, kind="fresh-noise"),
        explained_by="forward.noise-repeated",
    ),
    error_rule(
        "TAR003",
        "target.wrong",
        "A modified target",
        what="The target is related to the declared one, but scaled, rotated or clamped.",
        why="The network learns something that the sampler does not undo.",
        similar="Another prediction type is reported as such.",
        limits="Changes of less than 5 %.",
        fix="epsilon: the noise; sample: x0; v_prediction: sqrt(a)·noise − sqrt(1 − a)·x0; flow: noise − x0.",
        needs=(checks.TARGET_DECLARED, tuple(checks.TARGET.values())),
        detect=partial(detect_kind, kind="wrong"),
        explained_by="forward.noise data.nonfinite scale.integer timesteps.shuffled timesteps.out-of-range",
    ),
    error_rule(
        "TAR004",
        "target.other-noise",
        "Other noise in the target than in the input",
        what="x_t or the target holds a draw of noise that the other does not.",
        why="There is nothing to learn about it: the loss stays above its variance.",
        similar="Targets of a teacher, as in distillation, are no mixture either, but not noise.",
        limits="Loops that do not pass x0, noise and target.",
        fix="Draw the noise once, and use the same tensor for x_t and for the target.",
        needs=(
            checks.MIXTURE_TARGET,
            checks.MIXTURE_INPUT,
            (checks.MIXTURE_TARGET_KURTOSIS, checks.MIXTURE_INPUT_KURTOSIS),
            (checks.MIXTURE_TARGET_NEIGHBOURS, checks.MIXTURE_INPUT_NEIGHBOURS),
        ),
        detect=other_noise,
        explained_by="forward target.fresh-noise target.wrong",
    ),
    warning_rule(
        "TAR005",
        "target.against-time",
        "A velocity in the wrong direction",
        what="Flow matching: the target is the opposite of the derivative of x_t by the network's time.",
        why="A sampler integrates the velocity: with the wrong sign it goes from noise to more noise.",
        similar="A loop whose sampler turns the sign itself is healthy: ignore this there.",
        limits="Loops that do not pass x0, noise and target.",
        fix="x_t = (1 − t)·x0 + t·noise has the velocity noise − x0; x_t = t·x0 + (1 − t)·noise has x0 − noise.",
        needs=MIXTURE,
        detect=against_time,
        explained_by="target.other-type target.wrong",
    ),
    warning_rule(
        "TAR007",
        "target.not-a-velocity",
        "The noise as the target of flow matching",
        what="x_t is that of flow matching, and the target is the noise alone.",
        why="Samplers of flows integrate a velocity. At t = 1 the noise is the input itself: nothing is learnt there.",
        similar="x0 and v under flow matching say something at every time, and are healthy with a sampler to match.",
        limits=NO_SAMPLER,
        fix="Use noise − x0 as the target, or x0 with a sampler that expects it.",
        needs=MIXTURE[:2],
        detect=not_a_velocity,
        explained_by="target.other-type target.wrong forward.other",
    ),
    warning_rule(
        "TAR008",
        "target.scaled",
        "A target that is scaled or negated",
        what="The target is exactly a multiple of the noise, x0 or a velocity, or −noise, −x0 or EDM's −F; or, as an "
        "error, a velocity with signs or factors swapped, such as s·noise − a·x0, or x_t itself.",
        why="No sampler expects it: samples go away from the images.",
        similar="The two directions of a flow are both in use: target.against-time. EDM's F at sigma_data 1 is −v.",
        limits=NO_SAMPLER,
        fix="Use the target as it is; what should count more belongs into the weight of the loss.",
        needs=((checks.MIXTURE_ROW, checks.MIXTURE_TARGET_SCALE, checks.MIXTURE_TARGET_SWAPPED),),
        detect=scaled,
        explained_by="target.other-type target.wrong forward.other",
    ),
    error_rule(
        "TAR009",
        "target.other-sigma-data",
        "Two values of sigma_data",
        what="EDM: c_in and the target are computed with different sigma_data.",
        why="A sampler undoes both with one value: good loss, wrong contrast.",
        similar="One value that is not that of the data is scale.sigma-data.",
        limits=NO_SAMPLER,
        fix="Compute c_skip, c_out and c_in in one place, from one sigma_data.",
        needs=(checks.MIXTURE_SIGMA_DATA, checks.MIXTURE_TARGET_SIGMA_DATA),
        detect=other_sigma_data,
        explained_by="target.other-type",
    ),
    warning_rule(
        "TAR006",
        "target.of-another-process",
        "A flow's target on images noised as in DDPM",
        what="x_t is variance preserving, and the target is the difference of noise and x0.",
        why="Both are right by themselves, but no sampler expects them together.",
        similar="v prediction is a·noise − s·x0, with the factors of x_t.",
        limits="Loops that do not pass x0, noise and target.",
        fix="Flow matching: x_t = (1 − t)·x0 + t·noise. DDPM: epsilon, x0 or v as the target.",
        needs=MIXTURE[:2],
        detect=of_another_process,
        explained_by="target.other-type target.wrong",
    ),
)
