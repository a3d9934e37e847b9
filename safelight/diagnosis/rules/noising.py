"""Noised images, noise and timesteps that are not what the loop says."""

from __future__ import annotations

import numpy as np

from safelight.diagnosis.budget import bound
from safelight.diagnosis.case import Case, Spell
from safelight.diagnosis.finding import Evidence
from safelight.diagnosis.rule import Rule, Seen
from safelight.vocabulary import CHECK

WRONG = 0.02  # of the length of x_t: fp32 has 1e-7, bf16 0.004
SOME = 0.05  # of the samples
ROUGH = 0.5  # neighbours' difference over the whole spread; tables have 0.1, anything else 1
FEW_KINDS = 0.25  # of the timesteps that uniform draws would find; logit-normal draws find 0.8
GAP, FEW = 0.08, 1000  # share of the timesteps that none of so many draws hit; logit-normal draws leave 0.04
CERTAIN = 6.0  # standard errors, at the least


def _wrong(case: Case) -> Spell | None:
    return case.spell("forward/wrong", lambda numbers: ~(numbers <= SOME))


def _kind(case: Case) -> tuple[str, Spell] | None:
    """Which of the diseases of the noising it is; exactly one of them."""
    spell = _wrong(case)
    if spell is None:
        return None

    def at(name: str) -> float:
        steps, numbers = case.check(name)
        hits = numbers[(steps >= spell.first) & (steps <= spell.last)]
        return float(np.median(hits)) if len(hits) else float("nan")

    if at("forward/clean") < WRONG:
        return "no-noise", spell
    if at("forward/at_limit") > 0.02:
        return "clamped", spell
    if at("forward/residual") <= WRONG and at("forward/order") < min(0.005, 0.2 * at("forward/order_error")):
        return "shuffled", spell
    if at("forward/residual") <= WRONG and at("forward/rough") < ROUGH:
        return "other-schedule", spell
    return "not-the-formula", spell


def _look(case: Case, kind: str, summary: str) -> Seen | None:
    found = _kind(case)
    if found is None or found[0] != kind:
        return None
    spell = found[1]
    usual = {"wrong": "0", "error": "below 0.01", "residual": "0", "noise_seen": None, "at_limit": "0"}
    evidence = tuple(case.evidence(f"forward/{name}", at, step=spell.last) for name, at in usual.items())
    return Seen(spell.first, summary, evidence, ("a network that does not learn: it was not asked",), over=spell.over)


def look_other_schedule(case: Case) -> Seen | None:
    return _look(
        case,
        "other-schedule",
        "x_t is a mixture of image and noise, but not in the parts that the schedule says for its t: training and "
        "sampling follow different tables.",
    )


def look_clamped(case: Case) -> Seen | None:
    return _look(case, "clamped", "x_t was clamped: the noise that the network should find is cut off.")


def look_no_noise(case: Case) -> Seen | None:
    return _look(case, "no-noise", "There is no noise in x_t: the network is shown clean images at every timestep.")


def look_not_the_formula(case: Case) -> Seen | None:
    found = _look(
        case, "not-the-formula", "x_t is not made of the image and the noise that the loop says it is made of."
    )
    if found is not None:
        return found
    spell = case.spell("forward/input_error", lambda numbers: ~(numbers <= 0.05), 2)
    if spell is None:
        return None
    return Seen(
        spell.first,
        "The network is shown something else than x_t.",
        (case.evidence("forward/input_error", "0", step=spell.last),),
        ("a scaled input: a factor for each sample is allowed for",),
        over=spell.over,
    )


def look_shuffled(case: Case) -> Seen | None:
    return _look(
        case,
        "shuffled",
        "The timesteps are those of other samples: the noise levels of a batch are right, in another order. The "
        "network is told the wrong level for every image.",
    )


def look_not_normal(case: Case) -> Seen | None:
    """Moments over all batches looked at, against those of a standard normal."""
    _, counts = case.check("noise/count")
    if counts.sum() < 2000:
        return None
    _, means = case.check("noise/mean")
    _, stds = case.check("noise/std")
    _, fourth = case.check("noise/kurtosis")
    total = float(counts.sum())
    mean = float((means * counts).sum() / total)
    std = float(np.sqrt((np.square(stds) * counts).sum() / total))
    kurtosis = float((fourth * counts).sum() / total)
    certain = max(CERTAIN, bound("moments of the noise", len(counts), 3))
    far = {
        "noise/mean": abs(mean) > max(0.05, certain / total**0.5),
        "noise/std": abs(std - 1) > max(0.05, certain / (2 * total) ** 0.5),
        "noise/kurtosis": abs(kurtosis - 3) > max(0.5, certain * (24 / total) ** 0.5),
    }
    if not any(far.values()):
        return None
    values = {"noise/mean": mean, "noise/std": std, "noise/kurtosis": kurtosis}
    usual = {"noise/mean": "0", "noise/std": "1", "noise/kurtosis": "3"}
    return Seen(
        int(case.check("noise/count")[0][0]),
        f"The noise is not standard normal: mean {mean:.2f}, deviation {std:.2f}, kurtosis {kurtosis:.2f} over "
        f"{total:,.0f} numbers. Sampling begins from noise with 0, 1 and 3.",
        tuple(Evidence(f"{CHECK.name}/{name}", values[name], None, usual[name]) for name in values),
        confidence=0.999,
    )


def look_noise_repeated(case: Case) -> Seen | None:
    for name, words in (("noise/between", "all samples of a batch"), ("noise/within", "all pixels of an image")):
        spell = case.spell(name, lambda numbers: numbers < 1e-6)
        if spell is not None:
            return Seen(spell.first, f"One draw of noise is used for {words}.", (case.evidence(name, "1", spell.last),),
                        over=spell.over)  # fmt: skip
    steps, _ = case.check("stream/noise_again")
    if len(steps) < 3:
        return None
    return Seen(
        int(steps[0]),
        f"The noise of {len(steps)} steps had been drawn before, number for number: the random numbers are set back.",
        (Evidence(f"{CHECK.name}/stream/noise_again", float(len(steps)), (int(steps[0]), int(steps[-1])), "0"),),
        ("chance: two draws of noise are never the same",),
    )


def look_gap(case: Case) -> Seen | None:
    drawn, gap = case.newest("stream/times_drawn", 0.0), case.newest("stream/times_gap", 0.0)
    if case.newest("stream/times_lowest") == case.newest("stream/times_highest"):
        return None  # always the same one: another disease
    few = case.newest("stream/times_kinds", 1.0)
    if few < FEW_KINDS and drawn >= 200:
        return Seen(
            0,
            f"There are only {few:.0%} as many different timesteps as {drawn:,.0f} draws would find: samples pass "
            "through others, which are never learnt.",
            (case.evidence("stream/times_kinds", "0.5 to 1"), case.evidence("stream/times_drawn")),
            ("a batch that shares one timestep: it counts as one draw",),
            confidence=0.999,
        )
    if gap < GAP or drawn < (FEW if gap < 0.25 else 200):
        return None
    low, high = case.newest("stream/times_lowest"), case.newest("stream/times_highest")
    return Seen(
        0,
        f"{gap:.0%} of the timesteps were never drawn in {drawn:,.0f} draws: they reach from {low:.0f} to {high:.0f}. "
        "Samples pass through all of them.",
        (case.evidence("stream/times_gap", "below 0.05"), case.evidence("stream/times_drawn")),
        ("chance, and draws that favour the middle: those leave at most 0.04",),
        confidence=0.999,
    )


def look_times_repeated(case: Case) -> Seen | None:
    steps, _ = case.check("stream/times_again")
    if len(steps) < 3 or case.newest("stream/times_lowest") == case.newest("stream/times_highest"):
        return None
    return Seen(
        int(steps[0]),
        f"The timesteps of {len(steps)} steps had been drawn before, all of them and in the same order: the random "
        "numbers are set back.",
        (Evidence(f"{CHECK.name}/stream/times_again", float(len(steps)), (int(steps[0]), int(steps[-1])), "0"),),
        ("chance: with four samples it comes once in 10^12 steps",),
    )


def look_constant(case: Case) -> Seen | None:
    drawn = case.newest("stream/times_drawn", 0.0)
    low, high = case.newest("stream/times_lowest"), case.newest("stream/times_highest")
    if drawn < 4 or low != high:
        return None
    return Seen(
        0,
        f"The timestep is {low:.0f} in every sample of every step: only one noise level is learnt.",
        (case.evidence("stream/times_lowest"), case.evidence("stream/times_highest")),
    )


def look_out_of_range(case: Case) -> Seen | None:
    steps, numbers = case.check("stream/times_outside")
    if not len(steps):
        return None
    return Seen(
        int(steps[0]),
        f"{float(numbers.mean()):.0%} of the timesteps are not in the schedule, which has "
        f"{case.newest('schedule/timesteps'):.0f}.",
        (Evidence(f"{CHECK.name}/stream/times_outside", float(numbers.mean()), (int(steps[0]), int(steps[-1])), "0"),),
    )


def look_not_passed_on(case: Case) -> Seen | None:
    spell = case.spell("timesteps/passed_on", lambda numbers: numbers < 0.9, 2)
    if spell is None:
        return None
    return Seen(
        spell.first,
        "The network is called with other timesteps than x_t was made with, and not with scaled ones either: it "
        "cannot know the noise level.",
        (case.evidence("timesteps/passed_on", "1", spell.last),),
        over=spell.over,
    )


TABLE = "Noise with the very table that is sampled with: scheduler.add_noise(x0, noise, t)."

RULES = (
    Rule(
        code="FOR001",
        cause="forward.other-schedule",
        title="Noised by another schedule",
        what="x_t = a·x0 + b·noise holds, with other a and b than the declared table has at t.",
        why="The network learns noise levels that the sampler never asks for: good loss, bad samples.",
        alike="Shuffled timesteps have the right levels in the wrong order. A wrong formula leaves a remainder.",
        misses="Tables that differ by less than 2 %.",
        fix=f"{TABLE} Mind alphas_cumprod against alphas, and the square roots.",
        look=look_other_schedule,
        yields=("scale.integer", "forward.noise-repeated", "timesteps.out-of-range"),
    ),
    Rule(
        code="FOR002",
        cause="forward.clamped",
        title="Noised images are clamped",
        what="Many numbers of x_t sit exactly at its limits.",
        why="At high noise most of it is cut off, and the rest cannot be told.",
        alike="Clamping the clean images is right, and leaves x_t alone.",
        misses="Limits that are hardly ever reached.",
        fix="Do not clamp x_t.",
        look=look_clamped,
        yields=("scale.integer",),
    ),
    Rule(
        code="FOR003",
        cause="forward.no-noise",
        title="No noise in the noised images",
        what="x_t holds no noise at any timestep.",
        why="There is nothing to remove, and sampling begins from pure noise.",
        alike="A wrong schedule has little noise at small t only.",
        misses="",
        fix=TABLE,
        look=look_no_noise,
        yields=("scale.integer", "scale.range-0-255"),
    ),
    Rule(
        code="FOR004",
        cause="forward.not-the-formula",
        title="Noised images that are made otherwise",
        what="x_t is no mixture of the image and the noise that were told, or the network is shown something else.",
        why="What is learnt is not what is sampled.",
        alike="A wrong table is a mixture in wrong parts.",
        misses="Changes of less than 2 %.",
        fix=TABLE,
        look=look_not_the_formula,
        yields=("scale.integer", "data.nonfinite"),
    ),
    Rule(
        code="FOR005",
        cause="forward.noise-not-normal",
        title="Noise that is not normal",
        what="Mean, deviation or kurtosis of the noise are not those of a standard normal.",
        why="Sampling begins from a standard normal, which the network then has never seen.",
        alike="Offset noise moves the mean of single images, not of all of them.",
        misses="Noise that is correlated between pixels.",
        fix="torch.randn_like, not rand_like.",
        look=look_not_normal,
        yields=("forward.noise-repeated",),
    ),
    Rule(
        code="FOR006",
        cause="forward.noise-repeated",
        title="The same noise again",
        what="Noise comes back from step to step, or is the same for all samples of a batch or all pixels of an image.",
        why="The network learns that noise by heart: the loss falls fast, and samples fail.",
        alike="The same images in every batch are another thing; so are the same timesteps.",
        misses="Repeats after more than 4,096 steps.",
        fix="Draw new noise for every sample of every step; do not seed inside the loop.",
        look=look_noise_repeated,
    ),
    Rule(
        code="TIM001",
        cause="timesteps.gap",
        title="Timesteps that are never drawn",
        what="A part of the schedule is never trained.",
        why="Samples pass through all of it: they fail where nothing was learnt.",
        alike="Draws that favour the middle still reach the ends.",
        misses="Gaps of less than 8 %.",
        fix="torch.randint(0, timesteps, …): the upper end is left out by itself.",
        look=look_gap,
        yields=("timesteps.repeated", "timesteps.constant", "forward.noise-repeated", "timesteps.out-of-range"),
    ),
    Rule(
        code="TIM002",
        cause="timesteps.shuffled",
        title="Timesteps of other samples",
        what="The noise levels of a batch are right, but belong to other samples than the timesteps say.",
        why="The network is told a wrong noise level for every image and learns to ignore it.",
        alike="A wrong schedule has wrong levels in the right order.",
        misses="",
        fix="Use the same t for noising and for the call, in the same order.",
        look=look_shuffled,
        yields=("timesteps.out-of-range",),
    ),
    Rule(
        code="TIM003",
        cause="timesteps.repeated",
        title="The same timesteps again",
        what="The timesteps of a step are those of a step before, all of them.",
        why="Only these noise levels are learnt.",
        alike="A constant timestep is the same within the batch too.",
        misses="",
        fix="Do not seed inside the loop, nor after a validation; use a generator of its own for that.",
        look=look_times_repeated,
    ),
    Rule(
        code="TIM004",
        cause="timesteps.constant",
        title="One timestep for everything",
        what="Every sample of every step has the same timestep.",
        why="Only one noise level is learnt.",
        alike="One timestep for a batch, another for the next, is slow but sound.",
        misses="",
        fix="torch.randint(0, timesteps, (len(x0),)).",
        look=look_constant,
    ),
    Rule(
        code="TIM005",
        cause="timesteps.out-of-range",
        title="Timesteps that the schedule does not have",
        what="Timesteps below 0 or beyond the end of the table.",
        why="An index from the other end is another noise level; one beyond it an error.",
        alike="",
        misses="",
        fix="torch.randint(0, timesteps, …).",
        look=look_out_of_range,
    ),
    Rule(
        code="TIM006",
        cause="timesteps.not-passed-on",
        title="The network is told another timestep",
        what="The order of the timesteps in the call of the network is not that of the timesteps of x_t.",
        why="The network cannot know the noise level.",
        alike="Scaled timesteps, or sigmas, keep the order. A network that ignores its timestep is called rightly.",
        misses="A scale that the embedding cannot resolve: that is model.embedding-collapsed.",
        fix="Call the model with the t of the noising.",
        look=look_not_passed_on,
    ),
)
