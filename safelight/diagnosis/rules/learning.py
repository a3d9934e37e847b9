"""What the model has learnt, against the closed-form denoisers of its data: ruined, nothing, too little, too slowly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from safelight import checks
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.rule import CONFIG, AtLeast, Detection, error_rule, warning_rule
from safelight.diagnosis.run_history import RunHistory, running_median, stays_at_first
from safelight.diagnosis.vanishing import CURE, VANISHED_RATIO, or_vanishes, weakest_part
from safelight.vocabulary import (
    GRADIENT_PART,
    LEARNING_RATE,
    LOSS,
    SKILL_HELD_OUT,
    SKILL_RAW,
    UPDATE_RATIO,
    WEIGHT_NORM,
)
from safelight.words import round_rate

# Healthy ranges are those of 36 runs of 9,600 to 76,800 images: bench/learning.py and a few of larger networks.
LOOKS = 3  # their median: one checkpoint alone may lie in a trough of the loss
MIN_SKILL = 0.5  # the skill that can be lost
KEPT_SKILL_SHARE = 0.75  # the share of it that is kept: 0.98 and more in healthy runs
UPDATES = 64  # before which no run is judged
Table = tuple[tuple[int, int, float], ...]
"""Images, updates, and the skill after both."""
# Some healthy runs are slower: never alone.
SLOW_LOSSES: Table = ((10_000, 64, 0.0), (24_000, 150, 0.9), (60_000, 300, 1.0))
STUCK: Table = (
    (10_000, 64, 0.0),
    (24_000, 150, 0.36),
    (60_000, 300, 0.5),
)  # v and x0: healthy ones had 0.74 after 25,600
# Loops that are not ours have networks and rates of any kind, and skill alone says little: 18 small healthy ones had
# -2.2 to 1.2 after 60,000 images. Their error was 0.05 to 0.69 of that of a model which predicts 0; 0.95 and more in
# five that learnt nothing. Weights grew up to 2.3 times in healthy ones, 33 and 74 times where a rate had broken them.
FOREIGN: Table = ((60_000, 500, 0.0),)
FOREIGN_ERROR_SHARE, ERRORS = 0.9, 16
FOREIGN_GROWN = 4.0
ENDED_LOSS_SHARE = 0.7  # at the end of a run: just below those 0.74
GROWN = 1.5  # norm of a part's weights over its first; 1.36 at most in healthy runs, 1.78 and more in broken ones
SMALL_UPDATE = 1.2e-3  # of the weights: median over the parts, where they are long; healthy runs have 0.0023 to 0.009
LONGER = "Train longer: raise train.steps."
STALLED = (
    "The skill gains so little that twice as many steps would leave it below a linear filter: compare optimizer.lr and "
    "the loss with a loop that learns, or raise model.widths, before you raise train.steps."
)
CAUSES_OF_DAMAGE = (
    "data.nonfinite data.blank data.shifted data.same-batch scale. conditioning. schedule. forward. timesteps. target. "
    "loss. model. optimizer. lr. mode. precision. clipping. accumulation. distributed.drift distributed.same-noise "
    "checkpoint. generalisation.overfitting"
)


@dataclass(frozen=True, slots=True)
class Learning:
    """The skill of the raw weights at each checkpoint, smoothed."""

    steps: np.ndarray
    skills: np.ndarray
    images: int
    """Seen at the last one."""

    @property
    def latest(self) -> float:
        return float(self.skills[-1])

    @property
    def step(self) -> int:
        return int(self.steps[-1])

    @property
    def is_stalled(self) -> bool:
        """Whether a run twice as long would still be below a linear filter."""
        gained = float(self.skills[-1] - self.skills[len(self.skills) // 2])
        return self.latest + 2 * gained < 1


def learning(run: RunHistory) -> Learning | None:
    """None before there is enough to judge."""
    steps, skills = run.series(SKILL_RAW)
    if len(steps) < LOOKS or steps[-1] < UPDATES:
        return None
    batch = run.config.train.batch_size if run.config else run.latest(checks.STREAM_PER_STEP, 0.0)
    return Learning(steps[LOOKS - 1 :], running_median(skills, LOOKS), int(batch * (int(steps[-1]) + 1)))


def slow(run: RunHistory, own: Table = SLOW_LOSSES) -> Learning | None:
    """Where the model never was as good as the table of our own runs says that it should be."""
    found, table = learning(run), FOREIGN if run.config is None else own
    if found is None or (run.config is not None and run.config.model.init is not None):
        return None  # fine-tuning
    if run.config is None and not _is_unlearnt(run):
        return None
    due = [skill for images, updates, skill in table if found.images >= images and found.step >= updates]
    return found if due and float(found.skills.max()) < max(due) else None


def _is_unlearnt(run: RunHistory) -> bool:
    """Whether the newest errors are those of a model that always predicts 0, or worse."""
    steps, errors = (each[-ERRORS:] for each in run.series(checks.LOSS_MSE))
    zeros = run.at(checks.LOSS_ZERO_MSE, steps)
    return len(steps) == ERRORS and bool(np.median(errors / np.maximum(zeros, 1e-12)) > FOREIGN_ERROR_SHARE)


def too_early(run: RunHistory) -> str | None:
    """Why no skill can be judged yet."""
    found, (images, updates, _) = learning(run), (FOREIGN if run.config is None else STUCK)[0]
    if found is None or (found.images >= images and found.step >= updates):
        return None
    return f"needs {images:,} images and {updates:,} updates; there were {found.images:,} and {found.step + 1:,}"


def stuck(run: RunHistory) -> Learning | None:
    """The same with wide margins, for what no other reading confirms."""
    found = slow(run, STUCK)
    return found if found is not None and found.is_stalled and not _predicts_noise(run) else None


def _predicts_noise(run: RunHistory) -> bool:
    """At much noise the noise is nearly the input: filters have it for free, healthy networks learn it last."""
    return run.config is not None and run.config.diffusion.prediction == "epsilon"


def ruined(run: RunHistory) -> Detection | None:
    found = learning(run)
    if found is None:
        return None
    best = np.maximum.accumulate(found.skills)
    lost = (best >= MIN_SKILL) & (found.skills < KEPT_SKILL_SHARE * best)
    if not lost[-1]:
        return None
    first = int(found.steps[np.flatnonzero(~lost)[-1]]) if not lost.all() else int(found.steps[0])
    at = int(found.steps[int(np.argmax(found.skills))])
    return Detection(
        first,
        f"The model has lost what it had learnt: its skill is {found.latest:.2f}, and was {float(best[-1]):.2f} at "
        f"step {at:,}.",
        (Evidence(SKILL_RAW.name, found.latest, (at, found.step), f"above {KEPT_SKILL_SHARE * float(best[-1]):.2f}"),),
        ("a hard batch: the skill is that of the same images, noise and timesteps at every checkpoint",),
        confidence=0.99,
    )


def _growth(run: RunHistory) -> tuple[str, float]:
    """The part of the network whose weights grew the most, and how many times; parts that begin at 0 left out."""
    grown = {
        part: float(norms[-1] / norms[0])
        for part in run.parts(WEIGHT_NORM)
        if len(norms := run.numbers(f"{WEIGHT_NORM.name}/{part}")) > 1 and norms[0] > 1.0
    }
    return max(grown.items(), key=lambda pair: pair[1], default=("", 1.0))


def _has_grown(run: RunHistory) -> bool:
    return _growth(run)[1] >= (FOREIGN_GROWN if run.config is None else GROWN)


def _updates(run: RunHistory) -> float:
    """The length of updates over that of the weights, as it is where it is the largest; the median over the parts."""
    ratios = [run.numbers(f"{UPDATE_RATIO.name}/{part}") for part in run.parts(UPDATE_RATIO)]
    quantiles = [float(np.quantile(each, 0.9)) for each in ratios if len(each) > 1]
    return float(np.median(quantiles)) if quantiles else np.nan


def _facts(found: Learning) -> tuple[str, Evidence]:
    words = (
        f"after {found.images:,} images the model is worse than a filter that knows only the mean image and one "
        f"variance (skill {found.latest:.2f})"
        if found.latest < 0
        else f"after {found.images:,} images the model is not as good as the best linear filter (skill "
        f"{found.latest:.2f} of 1)"
    )
    return words, Evidence(SKILL_RAW.name, found.latest, (int(found.steps[0]), found.step), "above 0.7 by then")


def broken_weights(run: RunHistory) -> Detection | None:
    """The rate was too high at first: weights grew, and what is left of the network learns no more."""
    found, (part, times) = slow(run), _growth(run)
    if found is None or not _has_grown(run):
        return None
    words, evidence = _facts(found)
    rate = float(run.numbers(LEARNING_RATE).max(initial=0.0))
    better = round_rate(rate / 10)
    return Detection(
        0,
        f"Updates were too large, and have broken the network: the weights of {part} have grown {times:.3g} times, and "
        f"{words}.",
        (evidence, run.evidence(f"{WEIGHT_NORM.name}/{part}", "1.04 to 1.36 times its first")),
        ("a network that is too small: its weights would not have grown",),
        confidence=0.95,
        fix=Fix(f"Lower the learning rate to about {better:g}, and train from the start.", {"optimizer.lr": better})
        if rate > 0
        else None,
    )


def short_updates(run: RunHistory) -> Detection | None:
    """Slower than every healthy run, by updates that are too short."""
    found, size = slow(run), _updates(run)
    if found is None or not 0 < size < SMALL_UPDATE or _has_grown(run):
        return None
    words, evidence = _facts(found)
    rate = float(run.numbers(LEARNING_RATE).max(initial=0.0))
    better = round_rate(rate * min(100.0, 4e-3 / size))
    return Detection(
        0,
        f"The training is too slow: an update moves the weights by {size:.1g} of their length, in healthy runs by "
        f"about 0.004, and {words}.",
        (evidence, Evidence(UPDATE_RATIO.name, size, (int(found.steps[0]), found.step), "0.0023 to 0.009")),
        ("a network that is too small: its updates would be as long as usual",),
        confidence=0.95,
        fix=Fix(f"Raise the learning rate to about {better:g}.", {"optimizer.lr": better}, "unsafe") if rate else None,
    )


def has_short_updates(run: RunHistory) -> bool:
    return 0 < _updates(run) < SMALL_UPDATE


def stays_by_short_updates(run: RunHistory) -> Detection | None:
    """By the loss alone: it is where it began, and updates are too short to change that."""
    stay = stays_at_first(run)
    if stay is None or not has_short_updates(run):
        return None
    size, rate = _updates(run), float(run.numbers(LEARNING_RATE).max(initial=0.0))
    better = round_rate(rate * min(100.0, 4e-3 / size))
    return Detection(
        0,
        f"The loss is {stay.latest:.3g} after {stay.steps:,} steps, and was {stay.first:.3g} at first; an update moves "
        f"the weights by {size:.1g} of their length, in healthy runs by about 0.004.",
        (
            Evidence(LOSS.name, stay.latest, (0, stay.last), "below 0.9"),
            Evidence(UPDATE_RATIO.name, size, (0, stay.last), "0.0023 to 0.009"),
        ),
        ("a trained model that is trained on: its loss is lower, and differs by timestep",),
        confidence=0.95,
        fix=Fix(f"Raise the learning rate to about {better:g}.", {"optimizer.lr": better}, "unsafe") if rate else None,
    )


def vanishing(run: RunHistory) -> Detection | None:
    found, (part, share) = slow(run), weakest_part(run)
    if found is None or not share < VANISHED_RATIO or _has_grown(run):
        return None
    if run.config is not None and _updates(run) < SMALL_UPDATE:
        return None
    words, evidence = _facts(found)
    return Detection(
        0,
        f"The gradient vanishes on its way through the network: that of {part} is {share:.1g} of the largest one of a "
        f"part, each for the length of its weights, and {words}.",
        (evidence, run.evidence(f"{GRADIENT_PART.name}/{part}", "above 0.0001 of the largest")),
        ("a learning rate that is too low: all gradients would be of the usual size",),
        confidence=0.95,
    )


def too_small(run: RunHistory) -> Detection | None:
    """Nothing is wrong with its updates, and it stays where it is, on trained and on held-out images alike."""
    found, size = stuck(run), _updates(run)
    if found is None or run.config is None or not size >= SMALL_UPDATE:
        return None
    if _has_grown(run) or weakest_part(run)[1] < VANISHED_RATIO:
        return None
    words, evidence = _facts(found)
    half = found.steps[len(found.steps) // 2]
    return Detection(
        0,
        f"The network is too small for these images: {words}, and hardly becomes better since step {int(half):,}, "
        "though updates and gradients are as they should be.",
        (evidence, run.evidence(SKILL_HELD_OUT, "as on trained images")),
        ("a learning rate that is too low or too high: updates are of the usual length, weights have not grown",),
        confidence=0.9,
    )


def nothing_learnt(run: RunHistory) -> Detection | None:
    found = stuck(run)
    if found is None:
        return None
    words, evidence = _facts(found)
    return Detection(0, f"The model learns nothing, or far too slowly: {words}.", (evidence,), confidence=0.95)


def _gains_little(steps: np.ndarray, skills: np.ndarray) -> bool:
    """Whether a run twice as long would still be below a linear filter, with a margin of two: by its later half."""
    gained = float(skills[-1] - np.interp(steps[-1] / 2, steps, skills))
    return len(steps) >= LOOKS and float(skills[-1]) + 2 * gained < 1


def undertrained(run: RunHistory) -> Detection | None:
    """At the end of a run, where nothing else explains it."""
    steps, skills = run.series(SKILL_RAW)
    planned = run.planned_steps
    if (
        _predicts_noise(run)
        or not len(steps)
        or planned is None
        or steps[-1] < planned - 1
        or skills[-1] >= ENDED_LOSS_SHARE
    ):
        return None
    return Detection(
        int(steps[-1]),
        f"The run ended after {int(steps[-1]) + 1:,} steps with a skill of {float(skills[-1]):.2f}: a linear filter "
        "does better. It is undertrained.",
        (run.evidence(SKILL_RAW, "above 1"),),
        confidence=0.99,
        fix=Fix(STALLED) if _gains_little(steps, skills) else None,
        severity=None if run.config is not None else "info",  # how long somebody else's loop is tried is a choice
    )


RULES = (
    error_rule(
        "LEA001",
        "loss.ruined",
        "A model that has lost what it had learnt",
        what="The skill of the weights is far below what it was.",
        why="What comes now is worse than an earlier checkpoint, and may never come back.",
        similar="In a divergence the loss is far above that of a model which predicts 0.",
        limits="Runs that had learnt less than half of a linear filter.",
        fix="Return to the best checkpoint, and lower optimizer.lr.",
        needs=(AtLeast(SKILL_RAW, LOOKS),),
        detect=ruined,
        explained_by=CAUSES_OF_DAMAGE,
        is_aftereffect=True,
    ),
    error_rule(
        "LEA002",
        "loss.not-learning",
        "A model that learns nothing",
        what="After thousands of images the model is worse than a filter that knows hardly anything of them.",
        why="The loss may look normal: most of it is the same for every model.",
        similar="Where updates have broken the weights it is lr.too-high; where they are too short, lr.too-low.",
        limits="Runs that learn a little, far too slowly; those that predict the noise. Loops that are not ours: "
        "before 60,000 images and 500 updates, and where the error is below 0.9 of that of predicting 0.",
        fix="Compare with a run of the same images and the preset's settings; check what differs.",
        needs=(AtLeast(SKILL_RAW, LOOKS), (CONFIG, checks.STREAM_PER_STEP)),
        detect=nothing_learnt,
        unable=too_early,
        explained_by=CAUSES_OF_DAMAGE,
        is_aftereffect=True,
    ),
    warning_rule(
        "LEA003",
        "loss.undertrained",
        "A run that ended too early",
        what="At the end of the run a linear filter still denoises better than the model.",
        why="Samples are noise or mush.",
        similar="A model that learns nothing stays there, however long it is trained.",
        limits="Models that are nearly as good as a linear filter and draw bad samples: see the evaluation. Those that "
        "predict the noise.",
        fix=LONGER,
        needs=(AtLeast(SKILL_RAW, LOOKS),),
        detect=or_vanishes(undertrained, LONGER),
        explained_by=f"{CAUSES_OF_DAMAGE} ema. generalisation.",
        is_aftereffect=True,
    ),
    error_rule(
        "LEA004",
        "model.vanishing-gradient",
        "Gradients that vanish on their way",
        what="The gradient of one part is a hundred-thousandth of that of another, and the model does not learn.",
        why="That part is not trained: deep stacks of saturating layers, or no skip connections.",
        similar="Dead units have gradients of exactly 0 (MOD005).",
        limits="Optimizers that scale each gradient, such as Adam, may train such a network all the same. Loops that "
        "are not ours: as for loss.not-learning.",
        fix=CURE,
        needs=(AtLeast(SKILL_RAW, LOOKS), (CONFIG, checks.STREAM_PER_STEP), GRADIENT_PART, WEIGHT_NORM),
        detect=vanishing,
        unable=too_early,
        explained_by="model.no-gradient model.dead model.zero-init model.frozen model.bounded scale. lr.too-high "
        "optimizer. loss. precision.",
    ),
    warning_rule(
        "LEA005",
        "model.too-small",
        "A network that is too small",
        what="The model stays below a linear filter, though gradients and updates are as they should be.",
        why="It has too few weights to learn these images, however long it is trained.",
        similar="A rate that is too low has short updates; one that is too high makes weights grow.",
        limits="Networks that are a little too small; those that predict the noise. Loops that are not ours, of which "
        "it is not known how well such images can be learnt.",
        fix="Raise model.widths.",
        needs=(AtLeast(SKILL_RAW, LOOKS), CONFIG, UPDATE_RATIO),
        detect=too_small,
        unable=too_early,
        explained_by=CAUSES_OF_DAMAGE,
    ),
)
