"""Samplers that do not return what an exact denoiser predicts."""

from __future__ import annotations

from functools import partial

from safelight import checks
from safelight.checks import PREDICTIONS, SCHEDULES, TIMES_TOLD
from safelight.diagnosis.rule import Detection, error_rule, first_of
from safelight.diagnosis.run_history import HealthyRanges, RunHistory

FEWEST_CALLS = 5  # one or two steps miss the answer, even if they are correct
HEALTHY_SAMPLER: HealthyRanges = {
    checks.SAMPLER_LEFT: "below 0.003",
    checks.SAMPLER_SCALE: "1",
    checks.SAMPLER_FIRST: "above 0.9",
    checks.SAMPLER_PATH: "below 1.4",
    checks.SAMPLER_CLOUD_SPREAD: "0.5 to 1.6",
}


def _kind(run: RunHistory) -> str | None:
    calls = run.latest(checks.SAMPLER_CALLS, -1.0)
    if calls == 0:
        return "wrong"
    if not len(run.steps(checks.SAMPLER_FINITE)):
        return None
    if not run.latest(checks.SAMPLER_FINITE):
        return "wrong"
    if calls < FEWEST_CALLS:
        return None
    left, scale, shift = map(run.latest, (checks.SAMPLER_LEFT, checks.SAMPLER_SCALE, checks.SAMPLER_SHIFT))
    low, high = checks.CLOUD_SPREADS
    spread = run.latest(checks.SAMPLER_CLOUD_SPREAD, 1.0) if calls >= checks.CLOUD_CALLS else 1.0
    close = left <= checks.SAMPLER_LIMIT and checks.has_image_range(scale, shift)
    late = run.latest(checks.SAMPLER_FIRST, 1.0) < checks.LATE_START
    # Whether the network is given the number of the step instead of its timestep.
    counts = run.latest(checks.SAMPLER_HIGHEST_TIME) <= calls
    path = run.latest(checks.SAMPLER_PATH, 1.0)
    if len(run.steps(checks.SAMPLER_RIGHT_UNSCALED)):
        return "other-scale"
    if len(run.steps(checks.SAMPLER_RIGHT_FOR_TIME)) and not len(run.steps(checks.SAMPLER_RIGHT_FOR_TYPE)):
        return "other-times"
    if not close or not low < spread < high:
        if len(run.steps(checks.SAMPLER_RIGHT_FOR_TYPE)):
            return "other-type"
        if len(run.steps(checks.SAMPLER_RIGHT_FOR_TABLE)):
            return "other-schedule"
        if counts:
            return "wrong"
        limit = run.latest(checks.SAMPLER_LARGEST) < 0.98 * run.latest(checks.SAMPLER_REACH)
        if limit and run.latest(checks.SAMPLER_AT_LIMIT) > 0.1:
            return "clipped"
        if late:
            return "starts-late"
        if close:
            return "wrong"
        healthy = abs(scale - 1) < 0.05 and abs(shift) < 0.05 and 0.5 < path < 1.3
        return "last-noise" if healthy and left < 0.5 else "wrong"
    if late:
        return "wrong" if counts else "starts-late"
    if not checks.START_SIZES[0] < run.latest(checks.SAMPLER_START, 1.0) < checks.START_SIZES[1]:
        return "wrong"
    if path > checks.MAX_PATH_RATIO:
        return "wrong" if counts else "other-schedule"
    return None if 0.1 < run.latest(checks.SAMPLER_SHARE, 0.5) < 0.9 else "wrong"


def detect_kind(run: RunHistory, kind: str) -> Detection | None:
    if _kind(run) != kind:
        return None
    left, first = run.latest(checks.SAMPLER_LEFT), run.latest(checks.SAMPLER_FIRST)
    table = run.latest(checks.SAMPLER_RIGHT_FOR_TABLE, -1.0)
    told = TIMES_TOLD[int(run.latest(checks.SAMPLER_RIGHT_FOR_TIME, 0.0))]
    kind_of_answer = PREDICTIONS[int(run.latest(checks.SAMPLER_RIGHT_FOR_TYPE, 0.0))]
    words = {
        "other-times": f"The sampler tells the network {told}, which is not what it is told in training: it takes "
        "every input for one with another noise.",
        "other-scale": "The sampler shows the network x_t as it is; in training it sees c_in·x_t.",
        "last-noise": f"Noise is left in the samples ({left:.1%} of their size), though the denoiser is exact: it is "
        "added after the last step.",
        "starts-late": f"Sampling begins at {first:.0%} of the timesteps, from pure noise that the network takes for a "
        "faint image.",
        "clipped": f"The sampler clips at {run.latest(checks.SAMPLER_LARGEST):.3g}, where the data reach to "
        f"{run.latest(checks.SAMPLER_REACH):.3g}.",
        "other-schedule": "The sampler uses another schedule than the training"
        + (f": it is right for {SCHEDULES[int(table)]}." if table >= 0 else "."),
        "other-type": f"The sampler takes the prediction for {kind_of_answer}, which is not what is trained or "
        "declared.",
        "wrong": "With an exact denoiser the sampler "
        + (
            f"misses the answer by {left:.0%}."
            if left > checks.SAMPLER_LIMIT
            else "returns another spread, or has other noise levels on the way."
        ),
    }
    return Detection(
        run.latest_step(checks.SAMPLER_CALLS),
        words[kind],
        run.evidence_of(HEALTHY_SAMPLER),
        ("the model: the sampler was driven by an exact denoiser in its place",),
    )


WAY = "The run's own sampler is driven by the exact denoiser of two images and of a Gaussian, which it must return."
DRIVEN = (checks.SAMPLER_FINITE, checks.SAMPLER_CALLS)
OF_TRAINING = "target.against target.of-another target.not-a target.scaled forward. timesteps."
YIELDS = f"schedule.not-decreasing schedule.zero-snr schedule.signal-left scale. {OF_TRAINING}"

RULES = (
    error_rule(
        "SAM001",
        "sampler.last-noise",
        "Noise after the last step",
        what=f"{WAY} It does, with noise on top.",
        why="Every sample is grainy, however good the model.",
        similar="A model that has not learnt small noise levels is grainy too; here the denoiser is exact.",
        limits="Noise below 0.3 %.",
        fix="No noise at the last step: where t is 0, return the mean.",
        needs=(*DRIVEN, checks.SAMPLER_LEFT, checks.SAMPLER_SCALE, checks.SAMPLER_SHIFT),
        detect=partial(detect_kind, kind="last-noise"),
        explained_by=YIELDS,
    ),
    error_rule(
        "SAM002",
        "sampler.starts-late",
        "Sampling begins too late",
        what="The first timestep of the sampler is far from the last one of the schedule.",
        why="The network takes pure noise for a faint image: brightness and layout suffer.",
        similar="A schedule that leaves signal at its end is schedule.signal-left.",
        limits="Beginnings within a tenth of the end.",
        fix='timestep_spacing="trailing".',
        needs=(*DRIVEN, checks.SAMPLER_FIRST),
        detect=partial(detect_kind, kind="starts-late"),
        explained_by=YIELDS,
    ),
    error_rule(
        "SAM003",
        "sampler.clipped",
        "Samples are clipped",
        what="The sampler clamps to less than the data reach.",
        why="Strong values are lost at every step: washed-out samples.",
        limits="A limit beyond two thirds of the data's.",
        fix="clip_sample=False, or a limit that the data have.",
        needs=(*DRIVEN, checks.SAMPLER_LARGEST, checks.SAMPLER_REACH, checks.SAMPLER_AT_LIMIT),
        detect=partial(detect_kind, kind="clipped"),
        explained_by=YIELDS,
    ),
    error_rule(
        "SAM004",
        "sampler.other-schedule",
        "Sampling with another schedule",
        what=f"{WAY} It does for another schedule, or the noise on the way is not that of the schedule.",
        why="Noise is removed too fast or too slowly: noisy or dull samples from a good loss.",
        similar="Training with another schedule is forward.other-schedule.",
        fix="Make the sampler from the training scheduler: Scheduler.from_config(training.config).",
        needs=(*DRIVEN, (checks.SAMPLER_RIGHT_FOR_TABLE, checks.SAMPLER_PATH)),
        detect=partial(detect_kind, kind="other-schedule"),
        explained_by=f"{YIELDS} forward.other-schedule",
    ),
    error_rule(
        "SAM005",
        "sampler.other-type",
        "The sampler expects another prediction",
        what=f"{WAY} It does if the denoiser answers in another prediction type than declared.",
        why="Garbage from a good loss.",
        fix="Set prediction_type of the sampler to what is trained.",
        needs=(*DRIVEN, checks.SAMPLER_RIGHT_FOR_TYPE),
        detect=partial(detect_kind, kind="other-type"),
        explained_by=f"target.other-type {OF_TRAINING}",
    ),
    error_rule(
        "SAM007",
        "sampler.other-times",
        "The sampler tells the network other times",
        what=f"{WAY} It does if the network is told other times than in training, or sees an input without c_in.",
        why="The network takes every input for one with another noise: noisy or dull samples from a good loss.",
        similar="Another schedule changes the noise, not what is said of it: sampler.other-schedule.",
        limits="Discrete timesteps. Times that are no usual function of the noise.",
        fix="Tell the network in the sampler what it is told in training: t, 1,000·t, σ or log(σ) / 4, and c_in.",
        needs=(*DRIVEN, (checks.SAMPLER_RIGHT_FOR_TIME, checks.SAMPLER_RIGHT_UNSCALED)),
        detect=first_of(partial(detect_kind, kind="other-times"), partial(detect_kind, kind="other-scale")),
        explained_by=f"{YIELDS} model.embedding",
    ),
    error_rule(
        "SAM006",
        "sampler.wrong",
        "A sampler that misses a known answer",
        what=f"{WAY} It does not.",
        why="Samples are bad, however good the model.",
        similar="Known mistakes are reported by name: SAM001 to SAM005.",
        limits="Mistakes that only show with labels or guidance.",
        fix="Compare it with a scheduler of diffusers step by step.",
        needs=(DRIVEN,),
        detect=partial(detect_kind, kind="wrong"),
        explained_by=YIELDS,
    ),
)
