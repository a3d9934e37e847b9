"""Samples that lack variety, kinds or shape, by what evaluations measured of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from safelight import checks
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.goal import find_goal
from safelight.diagnosis.rule import Detection, Detector, first_of, warning_rule
from safelight.diagnosis.run_history import Episode, RunHistory, episode_of
from safelight.diagnosis.sample_appearance import judge_appearance
from safelight.diagnosis.sample_quality import Kind, SampleQuality, judge_samples
from safelight.vocabulary import (
    CHECK,
    COVERAGE,
    DENSITY,
    GAUSSIAN_DISTANCE,
    GAUSSIAN_KERNEL,
    KERNEL,
    LARGEST_MODE,
    MODES,
    RECALL,
    SKILL_EMA,
    SKILL_RAW,
    UNBIASED,
    VARIETY,
    VENDI,
    Signal,
)
from safelight.words import lower_first

LINEAR = 1.0  # the skill of the best linear filter: below it a network has not learnt enough to be called collapsed
IN_A_ROW = 2  # evaluations; a healthy run on digits is past all of these at its second one
AHEAD = 0.1  # of skill, by which raw weights are better than an EMA that is too long
RISING_SKILL_FACTOR = 1.02  # of the skill since the evaluation before: still improving
EARLY_SKILL = 1.3  # below which a skill that has risen by a fifth since half of the steps is one on its way
EARLY_RISE = 1.2
UNEQUAL = 3.0  # times as many images in the largest class as in the smallest
STRONG_GUIDANCE = 2.0  # guidance from which on variety is traded for likeness
CAUSES = (
    "data. scale. conditioning. schedule. timesteps. forward. target. loss. model. optimizer. lr. ema. mode. "
    "precision. sampler. generalisation.missing-modes generalisation.overfitting"
)
BY_PIXELS = (
    "generalisation.blank generalisation.alike generalisation.saturated generalisation.noisy "
    "generalisation.colour-drift"
)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What one evaluation found, and how far the training had come."""

    step: int
    facts: dict[str, Any]
    quality: SampleQuality
    skill: float
    """The skill of the EMA; NaN if it is not known."""
    is_last: bool
    """Nothing is trained after it."""
    rise: float
    """The skill over that at half of the steps; NaN if it is not known."""

    @property
    def is_undertrained(self) -> bool:
        return self.skill < LINEAR or (self.skill < EARLY_SKILL and self.rise > EARLY_RISE)


def evaluations(run: RunHistory) -> list[Evaluation]:
    """Whole ones, and that of the last picture of a run that was too short for one."""
    return _judged(run, judge_samples, "evaluated", "evaluated_shortly")


def appearances(run: RunHistory) -> list[Evaluation]:
    """What the pixels of each picture say."""
    return _judged(run, judge_appearance, "appearance")


def _judged(run: RunHistory, judge: Callable[[dict[str, Any]], SampleQuality], *kinds: str) -> list[Evaluation]:
    found: list[Evaluation] = []
    planned = run.planned_steps or math.inf
    for event in sorted((each for kind in kinds for each in run.events(kind)), key=lambda each: each.step):
        last = bool(event.facts.get("ended")) or float(event.facts.get("after", event.step + 1)) >= planned
        skill, earlier = (_skill(run, SKILL_EMA, step) for step in (event.step, event.step // 2))
        skill = _skill(run, SKILL_RAW, event.step) if math.isnan(skill) else skill  # loops of others may have no EMA
        rise = skill / earlier if earlier > 0 else math.inf if earlier <= 0 else math.nan
        if math.isnan(skill) and (event.name == "appearance" or (run.config is None and not last)):
            continue  # nobody knows what the network has learnt: early samples look like anything
        found.append(Evaluation(event.step, event.facts, judge(event.facts), skill, last, rise))
    return found


def _skill(run: RunHistory, signal: Signal, step: int) -> float:
    """The newest at a step."""
    steps, numbers = run.series(signal)
    until_then = numbers[steps <= step]
    return float(until_then[-1]) if len(until_then) else math.nan


def on_evaluations(
    is_sick: Callable[[Evaluation], bool],
    describe: Callable[[RunHistory, Sequence[Evaluation], Episode], Detection],
    source: Callable[[RunHistory], list[Evaluation]] = evaluations,
) -> Detector:
    """Detects what two evaluations in a row show, or the last one of a run."""

    def detect(run: RunHistory) -> Detection | None:
        found = source(run)
        steps, sick = np.array([each.step for each in found]), np.array([is_sick(each) for each in found], bool)
        once = bool(found) and found[-1].is_last and bool(sick[-1])
        episode = episode_of(steps, sick, 1 if once else IN_A_ROW)
        return (
            None if episode is None else describe(run, [each for each in found if each.step <= episode.last], episode)
        )

    return detect


def on_kind(kind: Kind, *signals: tuple[Signal, str], ruled_out: str) -> Detector:
    """Detects samples of one kind from a network that has learnt enough. `signals` with their names among figures."""

    def describe(run: RunHistory, found: Sequence[Evaluation], episode: Episode) -> Detection:
        latest = found[-1]
        skill = f"skill {latest.skill:.2f}: the network denoises better than a linear filter"
        trained = () if math.isnan(latest.skill) else (f"too little training: {skill}",)
        return Detection(
            episode.first,
            latest.quality.sentence,
            (*(_evidence(latest, *each) for each in signals), *_distances(run, latest)),
            (*trained, ruled_out),
            confidence=0.99,
            fix=advise(run, found, kind),
            ended_at=episode.ended_at,
        )

    return on_evaluations(lambda each: each.quality.kind == kind and not each.is_undertrained, describe)


def on_appearance(kind: Kind, check: checks.ProbeReading, name: str) -> Detector:
    """Detects pictures of one kind from a network that has learnt enough. `name`: of the check among the facts."""

    def describe(run: RunHistory, found: Sequence[Evaluation], episode: Episode) -> Detection:
        latest = found[-1]
        look, where = latest.facts[name], (latest.step, latest.step)
        return Detection(
            episode.first,
            latest.quality.sentence,
            (Evidence(f"{CHECK.name}/{check}", look["value"], where, f"{look['low']:.2f} to {look['high']:.2f}"),),
            ("chance: real images were drawn as often, in sets of as many",),
            confidence=0.95,
            fix=_less_guidance(run) or _shorter_ema(run, latest),
            ended_at=episode.ended_at,
        )

    return on_evaluations(lambda each: each.quality.kind == kind and not each.is_undertrained, describe, appearances)


def _undertrained(run: RunHistory, found: Sequence[Evaluation], episode: Episode) -> Detection:
    latest = found[-1]
    rising = "" if latest.skill < LINEAR else ", and it still rises"
    return Detection(
        episode.first,
        f"Undertrained: {lower_first(latest.quality.sentence)} The network has a skill of {latest.skill:.2f}, and that "
        f"of a linear filter is 1{rising}.",
        (Evidence(SKILL_EMA.name, latest.skill, (latest.step, latest.step), "above 1"), *_distances(run, latest)),
        ("mode collapse: the network has not learnt enough yet to be said to have collapsed",),
        confidence=0.99,
        # How long somebody else's loop is trained, or tried, is a choice.
        severity="warning" if latest.is_last and run.config is not None else "info",
        fix=_shorter_ema(run, latest) or _longer(run),
        ended_at=episode.ended_at,
    )


def _evidence(evaluation: Evaluation, signal: Signal, name: str) -> Evidence:
    figure = evaluation.facts["figures"][name]
    low, high = figure["real"]
    return Evidence(signal.name, figure["value"], (evaluation.step, evaluation.step), f"{low:.2f} to {high:.2f}")


def _distances(run: RunHistory, evaluation: Evaluation) -> tuple[Evidence, ...]:
    if evaluation.quality.near is None:
        return ()
    own, gaussian = (UNBIASED, GAUSSIAN_DISTANCE) if "unbiased" in evaluation.facts else (KERNEL, GAUSSIAN_KERNEL)
    return run.evidence_of({own: "below half of the Gaussian's", gaussian: None})


def advise(run: RunHistory, found: Sequence[Evaluation], kind: Kind) -> Fix | None:
    """By the run's own evidence, the surest first; None: the rule's own."""
    latest = found[-1]
    fixes = (
        _balance(run) if kind in ("crowded", "missing") else None,
        _less_guidance(run),
        _shorter_ema(run, latest),
        _longer(run) if _is_improving(found) else None,
        _wider(run),
    )
    return next((fix for fix in fixes if fix is not None), None)


def _is_improving(found: Sequence[Evaluation]) -> bool:
    if len(found) == 1:
        return found[-1].rise > EARLY_RISE
    return found[-1].skill > RISING_SKILL_FACTOR * found[-2].skill


def _balance(run: RunHistory) -> Fix | None:
    counts = [count for event in run.events("data") for count in event.facts.get("classes", {}).values() if count]
    if run.config is None or run.config.data.balance or len(counts) < 2 or max(counts) < UNEQUAL * min(counts):
        return None
    text = f"The classes have {min(counts):,} to {max(counts):,} images: draw all of them equally often."
    return Fix(text, {"data.balance": True}, "unsafe")


def _less_guidance(run: RunHistory) -> Fix | None:
    if run.config is None or not run.config.model.conditional or run.config.sample.guidance < STRONG_GUIDANCE:
        return None
    strength = f"{run.config.sample.guidance:g}"
    text = f"Samples are drawn with a guidance of {strength}, which drives them away from real images: use 1."
    return Fix(text, {"sample.guidance": 1.0}, "safe")


def _shorter_ema(run: RunHistory, latest: Evaluation) -> Fix | None:
    """Samples are drawn from the EMA: where the raw weights are clearly better, it is too long."""
    raw = _skill(run, SKILL_RAW, latest.step)
    if run.config is None or not raw > latest.skill + AHEAD:
        return None
    text = f"The EMA is too long for the run: raw weights have a skill of {raw:.2f}, the EMA has {latest.skill:.2f}."
    if run.config.ema.kind == "power":
        width = round(run.config.ema.width / 2, 3)
        return Fix(f"{text} Halve its width, to {width:g}.", {"ema.width": width}, "unsafe")
    decay = round(1 - 20 / max(40, run.config.train.steps), 6)  # the last twentieth of the run
    return Fix(f"{text} Use a decay of {decay:g}.", {"ema.decay": decay}, "unsafe")


def _longer(run: RunHistory) -> Fix | None:
    if run.config is None:
        return None
    steps = 2 * run.config.train.steps
    return Fix(
        f"The model has not learnt enough: train longer, {steps:,} steps at least.", {"train.steps": steps}, "safe"
    )


def _wider(run: RunHistory) -> Fix | None:
    if run.config is None:
        return None
    widths = [2 * width for width in run.config.model.widths]
    text = "The skill no longer rises, so the network may be too small: double its widths"
    return Fix(f"{text}, to {', '.join(map(str, widths))}.", {"model.widths": widths}, "manual")


def _is_sick_early(evaluation: Evaluation) -> bool:
    return evaluation.quality.kind is not None and evaluation.is_undertrained


def describe_samples(run: RunHistory) -> str | None:
    """What the newest samples are like, and whether the target distance was reached; None before anything was drawn."""
    goal = find_goal(run.record)
    words = [_newest_look(run), None if goal is None else goal.words()]
    return " ".join(filter(None, words)) or None


def _newest_look(run: RunHistory) -> str | None:
    """By an evaluation, and where there is none as new or pixels are wrong, by these."""
    looks, found = appearances(run)[-1:], evaluations(run)[-1:]
    newest = max((each.step for each in looks + found), default=None)
    newest_ones = [each for each in found + looks if each.step == newest]
    return next((each.quality.sentence for each in [each for each in looks if each.quality.kind] + newest_ones), None)


NEEDS = (DENSITY, LARGEST_MODE, VARIETY)
PIXELS = "Only gross faults are seen in pixels."
RULES = (
    warning_rule("DIV001", "generalisation.crowded", "Samples crowd into one kind of image", 
        what="One kind of image is far more frequent among samples than among real images.",
        why="The model has collapsed to what it draws most easily: the rest of the data is drawn too rarely.",
        similar="Where kinds are missing, all others become more frequent: that is generalisation.missing-kinds. A "
        "network that has not learnt enough also draws few kinds: generalisation.undertrained.",
        limits="Kinds are found among the features of real images; classes that look alike are one kind. A class that "
        "is spread over many kinds can be five times too frequent without being seen.",
        fix="Balance the classes, check the labels that are sampled, or train a larger network for longer.",
        needs=NEEDS,
        detect=on_kind("crowded", (LARGEST_MODE, "largest mode"), (MODES, "modes"),
            ruled_out="bad images: these lie where real images do"),
        explained_by=f"{CAUSES} {BY_PIXELS}",
    ),
    warning_rule("DIV002", "generalisation.missing-kinds", "Kinds of images missing among samples", 
        what="Real images of some kinds have no samples near them, while those that are drawn look real.",
        why="The model has dropped part of the data.",
        similar="Labels that never come in training are generalisation.missing-modes. One kind that takes the place of "
        "all others is generalisation.crowded.",
        limits="Less than about 15 % of the images missing; a class that looks like another.",
        fix="Check the labels that are sampled, balance the classes, or train a larger network for longer.",
        needs=NEEDS,
        detect=on_kind("missing", (COVERAGE, "coverage"), (RECALL, "recall"), (MODES, "modes"),
            ruled_out="bad images: these lie where real images do"),
        explained_by=f"{CAUSES} {BY_PIXELS}",
    ),
    warning_rule("DIV003", "generalisation.too-little-variety", "Samples vary too little", 
        what="Samples look real and are too much alike: a handful of images again and again.",
        why="However many are drawn, there is little to see.",
        similar="Copies of training images are generalisation.copies: a model can copy with full variety.",
        limits="Fewer than about 200 samples.",
        fix="Lower the guidance, check the noise that sampling starts from, or train on more images.",
        needs=NEEDS,
        detect=on_kind("narrow", (VENDI, "vendi"), (VARIETY, "variance"), (RECALL, "recall"),
            ruled_out="bad images: these lie where real images do"),
        explained_by=f"{CAUSES} {BY_PIXELS}",
    ),
    warning_rule("DIV004", "generalisation.vague", "Samples vague and alike", 
        what="Samples vary less than real images and keep to the middle between them: blurry, grey or shrunk.",
        why="The model draws averages of images instead of images.",
        similar="Noise on otherwise good samples can look the same to the features; the sampler's probes see it.",
        limits="Small images leave little room between sharp and blurry.",
        fix="Check the noise that sampling starts from and the steps of the sampler, or train longer.",
        needs=NEEDS,
        detect=on_kind("vague", (VARIETY, "variance"), (DENSITY, "density"), (VENDI, "vendi"),
            ruled_out="missing kinds: all of them are visited, and each is too narrow"),
        explained_by=f"{CAUSES} {BY_PIXELS}",
    ),
    warning_rule("DIV005", "generalisation.no-better-than-gaussian", "Samples no better than a Gaussian", 
        what="Samples are as far from real images as random images that only share their mean and covariance.",
        why="They have colours and brightness of the data, and no shapes: mush.",
        similar="A network that has not learnt enough does the same: generalisation.undertrained. Here it denoises "
        "well, so that the samples should be better than that.",
        limits="Data that is nearly Gaussian itself, such as textures of noise, has no such yardstick.",
        fix="Check the sampler: its schedule, its steps and the weights that it uses; then train longer.",
        needs=((UNBIASED, KERNEL), (GAUSSIAN_DISTANCE, GAUSSIAN_KERNEL)),
        detect=on_kind("mush", ruled_out="too few samples: both distances are taken from the same number"),
        explained_by=f"{CAUSES} {BY_PIXELS}",
    ),
    warning_rule("DIV006", "generalisation.undertrained", "Samples of a network that has not learnt enough", 
        what="Samples are mush, vague or of few kinds, and the network denoises worse than a linear filter.",
        why="There is nothing to repair yet: it takes more training.",
        similar="A network that has learnt enough and draws few kinds has collapsed: generalisation.crowded and "
        "others.",
        limits="Runs that are not evaluated. While a run trains it is only noted.",
        fix="Train longer.",
        needs=((UNBIASED, KERNEL, checks.SAMPLES_CONTRAST), (SKILL_EMA, SKILL_RAW)),
        detect=first_of(
            on_evaluations(_is_sick_early, _undertrained),
            on_evaluations(lambda each: each.is_last and _is_sick_early(each), _undertrained, appearances),
        ),
        explained_by=f"{CAUSES} {BY_PIXELS}",
    ),
    warning_rule("DIV007", "generalisation.blank", "Blank samples", 
        what="Samples have hardly any contrast: each is nearly one colour.",
        why="There is nothing to see in them, though the network denoises well.",
        similar="Samples that have contrast and are all the same are generalisation.alike.",
        limits=PIXELS,
        fix="Check the sampler: its steps, its schedule, and the weights that it uses.",
        needs=(checks.SAMPLES_CONTRAST,),
        detect=on_appearance("blank", checks.SAMPLES_CONTRAST, "contrast"),
        explained_by=CAUSES,
    ),
    warning_rule("DIV008", "generalisation.alike", "Samples that are all the same", 
        what="From different noise nearly the same image is drawn.",
        why="The model has collapsed, or the sampler does not use its noise.",
        similar="A handful of images again and again is generalisation.too-little-variety.",
        limits=PIXELS,
        fix="Check the noise that sampling starts from, then the data for copies of one image.",
        needs=(checks.SAMPLES_APART,),
        detect=on_appearance("alike", checks.SAMPLES_APART, "apart"),
        explained_by=CAUSES,
    ),
    warning_rule("DIV009", "generalisation.saturated", "Samples at the ends of the range", 
        what="Far more values of samples are at an end of the range than of real images, or they are not finite.",
        why="Values left the range on the way and were cut off: flat areas in strong colours.",
        similar="A sampler that clips to less than the range is sampler.clipped.",
        limits=f"{PIXELS} Images that have only black and white.",
        fix="Lower the guidance, or raise the steps of the sampler.",
        needs=(checks.SAMPLES_SATURATED, checks.SAMPLES_NONFINITE),
        detect=on_appearance("saturated", checks.SAMPLES_SATURATED, "saturated"),
        explained_by=CAUSES,
    ),
    warning_rule("DIV010", "generalisation.noisy", "Noisy samples", 
        what="Neighbouring pixels of samples differ far more than those of real images.",
        why="Noise is left in them, or they are nothing but noise.",
        similar="A sampler that adds noise after its last step is sampler.last-noise.",
        limits=f"{PIXELS} Images that are grainy themselves.",
        fix="Check the steps and the schedule of the sampler, then train longer.",
        needs=(checks.SAMPLES_GRAIN,),
        detect=on_appearance("noisy", checks.SAMPLES_GRAIN, "grain"),
        explained_by=CAUSES,
    ),
    warning_rule("DIV011", "generalisation.colour-drift", "Colours or brightness of samples have drifted", 
        what="The mean of a channel over all samples is further from that of real images than these are spread.",
        why="All samples are too dark, too bright or tinted.",
        similar="A schedule that leaves signal at its end does the same: schedule.signal-left.",
        limits=PIXELS,
        fix="A longer EMA, a last timestep without signal, or a lower guidance.",
        needs=(checks.SAMPLES_COLOUR,),
        detect=on_appearance("off-colour", checks.SAMPLES_COLOUR, "colour"),
        explained_by=CAUSES,
    ),
)  # fmt: skip
