"""Noised images, noise and timesteps that are not what the loop declares."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from safelight import checks
from safelight.diagnosis.budget import bound
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.nonfinite import first_steps
from safelight.diagnosis.rule import (
    Detection,
    Detector,
    Reaching,
    error_rule,
    first_of,
    on_count,
    on_episode,
    on_latest,
    warning_rule,
)
from safelight.diagnosis.run_history import Episode, RunHistory, name_of

SOME_SAMPLES_SHARE, MOST_SAMPLES_SHARE = 0.05, 0.5  # of the samples; at t near 0 x_t is clean in every loop
ROUGH_SHARE = 0.5  # neighbours' difference over the whole spread; tables have 0.1, anything else 1
FEW_KINDS = 0.25  # of the timesteps that uniform draws would find; logit-normal draws find 0.8
SOME_DRAWS = 200  # draws: with fewer nothing is said
MAX_GAP, FEW_DRAWS = 0.08, 1000  # share of the timesteps that none of so many draws hit; logit-normal draws leave 0.04
SQUARED = 0.01  # mean distance of a factor from a table's squared; that of its root is 0.05 and more
CERTAIN = 6.0  # standard errors, at the least


def _kind(run: RunHistory) -> tuple[str, Episode] | None:
    """Which of the causes in the noising it is; exactly one of them."""
    episode = run.episode(checks.FORWARD_WRONG, lambda numbers: ~(numbers <= SOME_SAMPLES_SHARE))
    if episode is None:
        return None
    at = partial(run.median, episode=episode)
    if at(checks.FORWARD_CLEAN) < checks.FORWARD_LIMIT and at(checks.FORWARD_WRONG) > MOST_SAMPLES_SHARE:
        return "no-noise", episode
    if at(checks.FORWARD_AT_LIMIT) > AT_LIMIT:
        return "clamped", episode
    if at(checks.FORWARD_RESIDUAL) <= checks.FORWARD_LIMIT:
        if at(checks.FORWARD_ORDER) < min(0.005, 0.2 * at(checks.FORWARD_ORDER_ERROR)):
            return "shuffled", episode
        if at(checks.FORWARD_ROUGH) < ROUGH_SHARE:
            return "other-schedule", episode
    return "not-the-formula", episode


def on_kind(kind: str, summary: str | Callable[[RunHistory, Episode], str]) -> Detector:
    def find(run: RunHistory) -> Episode | None:
        found = _kind(run)
        return found[1] if found is not None and found[0] == kind else None

    return on_episode(
        find,
        summary,
        "a network that does not learn: it plays no part in this check",
        evidence={
            checks.FORWARD_WRONG: "0",
            checks.FORWARD_ERROR: "below 0.01",
            checks.FORWARD_RESIDUAL: "0",
            checks.FORWARD_NOISE_SEEN: None,
            checks.FORWARD_AT_LIMIT: "0",
        },
    )


def not_finite(run: RunHistory) -> Detection | None:
    images = set(run.steps(checks.BATCH_REACH).tolist())
    alone = [step for step in first_steps(run, "x_t") if step in images]
    if not alone:
        return None
    steps, errors = run.series(checks.LOSS_MSE)
    after = steps[(steps > alone[-1]) & np.isfinite(errors)]
    others = "image and noise do" if len(run.steps(checks.NOISE_COUNT)) else "the image does"
    return Detection(
        alone[0],
        f"x_t holds NaN or infinity though {others} not, first at step {alone[0]:,}.",
        (Evidence(name_of(checks.NONFINITE["x_t"]), 0.0, (alone[0], alone[-1]), "1"),),
        ("the network: it comes after x_t",),
        fix=Fix(
            "Look for a division by zero or the root of a negative number between the images and x_t: 1 - "
            "alphas_cumprod has to stay between 0 and 1, in fp32."
        ),
        ended_at=int(after[0]) if len(after) else None,
    )


def describe_other(run: RunHistory, episode: Episode) -> str:
    """With the roots that are missing, where the factors are those of the table squared."""
    clean, noise = (
        bool(run.median(root, episode=episode) < SQUARED)
        for root in (checks.FORWARD_CLEAN_ROOT, checks.FORWARD_NOISE_ROOT)
    )
    if not (clean or noise) or not len(run.steps(checks.SCHEDULE_TIMESTEPS)):
        return (
            "x_t is a mixture of image and noise, but not in the proportions of the schedule at its t: training and "
            "sampling use different tables."
        )
    made = f"{'ᾱ' if clean else '√ᾱ'}·x0 + {'(1 − ᾱ)' if noise else '√(1 − ᾱ)'}·noise"
    return f"x_t = {made}, where ᾱ is the table's entry at t; it should be √ᾱ·x0 + √(1 − ᾱ)·noise: " + (
        "square roots are missing." if clean and noise else "a square root is missing."
    )


def not_normal(run: RunHistory) -> Detection | None:
    """Moments over all batches, against those of a standard normal."""
    steps, counts = run.series(checks.NOISE_COUNT)
    total = float(counts.sum())
    if total < 2000:
        return None
    means, stds = run.at(checks.NOISE_MEAN, steps), run.at(checks.NOISE_STD, steps)
    mean = float((means * counts).sum() / total)
    std = float(np.sqrt((np.square(stds) * counts).sum() / total))
    kurtosis = float((run.at(checks.NOISE_KURTOSIS, steps) * counts).sum() / total)
    if np.isnan([mean, std, kurtosis]).any():
        return None
    certain = max(CERTAIN, bound("moments of the noise", len(counts), 3))
    if not (
        abs(mean) > max(0.05, certain / total**0.5)
        or abs(std - 1) > max(0.05, certain / (2 * total) ** 0.5)
        or abs(kurtosis - 3) > max(0.5, certain * (24 / total) ** 0.5)
    ):
        return None
    values = {checks.NOISE_MEAN: (mean, "0"), checks.NOISE_STD: (std, "1"), checks.NOISE_KURTOSIS: (kurtosis, "3")}
    return Detection(
        int(steps[0]),
        f"The noise is not standard normal: mean {mean:.2f}, deviation {std:.2f}, kurtosis {kurtosis:.2f} over "
        f"{total:,.0f} numbers. Sampling begins from noise with 0, 1 and 3.",
        tuple(Evidence(name_of(check), value, None, usual) for check, (value, usual) in values.items()),
        confidence=0.999,
    )


def _one_draw_for(check: checks.Check, what: str) -> Detector:
    summary = f"One draw of noise is used for {what}."
    return on_episode(lambda run: run.episode(check, lambda numbers: numbers < 1e-6), summary, evidence={check: "1"})


def gap_in_times(run: RunHistory) -> Detection | None:
    drawn, gap = run.latest(checks.STREAM_TIMES_DRAWN, 0.0), run.latest(checks.STREAM_TIMES_GAP, 0.0)
    if _is_constant(run):
        return None  # another cause
    few = run.latest(checks.STREAM_TIMES_KINDS, 1.0)
    if few < FEW_KINDS and drawn >= SOME_DRAWS:
        return Detection(
            0,
            f"There are only {few:.0%} as many different timesteps as {drawn:,.0f} draws should have: samples "
            "pass through others, which are never learnt.",
            (run.evidence(checks.STREAM_TIMES_KINDS, "0.5 to 1"), run.evidence(checks.STREAM_TIMES_DRAWN)),
            ("a batch that shares one timestep: it counts as one draw",),
            confidence=0.999,
        )
    if gap < MAX_GAP or drawn < (FEW_DRAWS if gap < 0.25 else SOME_DRAWS):
        return None
    low, high = run.latest(checks.STREAM_TIMES_LOWEST), run.latest(checks.STREAM_TIMES_HIGHEST)
    return Detection(
        0,
        f"{gap:.0%} of the timesteps were never drawn in {drawn:,.0f} draws: they reach from {low:.0f} to {high:.0f}. "
        "Samples pass through all of them.",
        (run.evidence(checks.STREAM_TIMES_GAP, "below 0.05"), run.evidence(checks.STREAM_TIMES_DRAWN)),
        ("chance, and draws that favour the middle: they leave at most 0.04",),
        confidence=0.999,
    )


def times_repeated(run: RunHistory) -> Detection | None:
    return None if _is_constant(run) else times_again(run)


def _is_constant(run: RunHistory) -> bool:
    return run.latest(checks.STREAM_TIMES_LOWEST) == run.latest(checks.STREAM_TIMES_HIGHEST)


times_again = on_count(
    checks.STREAM_TIMES_AGAIN,
    3,
    "The timesteps of {} steps had been drawn before, all of them and in the same order: the random generator is "
    "reset.",
    "chance: with four samples it comes once in 10^12 steps",
)


def out_of_range(run: RunHistory) -> Detection | None:
    steps, numbers = run.series(checks.STREAM_TIMES_OUTSIDE)
    if not len(steps):
        return None
    return Detection(
        int(steps[0]),
        f"{float(numbers.mean()):.0%} of the timesteps are not in the schedule, which has "
        f"{run.latest(checks.SCHEDULE_TIMESTEPS):.0f}.",
        (Evidence(name_of(checks.STREAM_TIMES_OUTSIDE), float(numbers.mean()), (int(steps[0]), int(steps[-1])), "0"),),
    )


PLAIN_SIGMA = checks.PROCESSES.index("ve")
EDM_ROWS = (checks.TARGET_ROWS.index("edm"), checks.TARGET_ROWS.index("-edm"))
CLAMPED = "x_t was clamped: the noise that the network should find is cut off."
CLEAN = "There is no noise in x_t: the network is shown clean images at every timestep."
AT_LIMIT = 0.02  # share of the values; whatever is not clamped has one value in a batch


def _undeclared(detect: Detector) -> Detector:
    """Where x_t is compared with nothing."""
    return lambda run: None if len(run.steps(checks.FORWARD_WRONG)) else detect(run)


TABLE = "Use the schedule of the sampler: scheduler.add_noise(x0, noise, t)."

RULES = (
    error_rule(
        "FOR001",
        "forward.other-schedule",
        "Noised by another schedule",
        what="x_t = a·x0 + b·noise holds, with other a and b than the declared table has at t.",
        why="The network learns noise levels that the sampler never uses: good loss, bad samples.",
        similar="Shuffled timesteps have the right levels in the wrong order. A wrong formula leaves a remainder.",
        limits="Tables that differ by less than 2 %. A sub-VP process, √ᾱ·x0 + (1 − ᾱ)·noise on purpose, with a table.",
        fix=f"{TABLE} Check that alphas_cumprod is read at t, not alphas = 1 − betas, and that "
        "both factors are square roots.",
        needs=(checks.FORWARD_WRONG, checks.FORWARD_RESIDUAL, checks.FORWARD_ORDER_ERROR, checks.FORWARD_ROUGH),
        detect=on_kind("other-schedule", describe_other),
        explained_by="scale.integer forward.noise-repeated timesteps.out-of-range",
    ),
    error_rule(
        "FOR002",
        "forward.clamped",
        "Noised images are clamped",
        what="Many values of x_t are exactly at its limits.",
        why="At high noise most of it is cut off, and cannot be predicted.",
        similar="Clamping the clean images is right, and leaves x_t alone.",
        limits="Limits that are hardly ever reached.",
        fix="Do not clamp x_t.",
        needs=(checks.FORWARD_AT_LIMIT,),
        detect=first_of(
            on_kind("clamped", CLAMPED),
            _undeclared(
                on_latest(
                    {checks.FORWARD_AT_LIMIT: "0", checks.MIXTURE_INPUT: "0"},
                    lambda there, left: there > AT_LIMIT and left > AT_LIMIT,
                    CLAMPED,
                )
            ),
        ),
        explained_by="scale.integer",
    ),
    error_rule(
        "FOR003",
        "forward.no-noise",
        "No noise in the noised images",
        what="x_t holds no noise at any timestep.",
        why="There is nothing to remove, and sampling begins from pure noise.",
        similar="A wrong schedule has little noise at small t only.",
        fix=TABLE,
        needs=(checks.FORWARD_CLEAN,),
        detect=first_of(
            on_kind("no-noise", CLEAN),
            _undeclared(
                on_episode(
                    lambda run: run.episode(checks.FORWARD_CLEAN, lambda numbers: numbers < checks.FORWARD_LIMIT),
                    CLEAN,
                    evidence={checks.FORWARD_CLEAN: "above 0.1"},
                )
            ),
        ),
        explained_by="scale.integer scale.range-0-255",
    ),
    error_rule(
        "FOR004",
        "forward.not-the-formula",
        "Noised images with another formula",
        what="x_t is no mixture of the image and the noise that were passed, or not finite though they are, or the "
        "network is shown something else.",
        why="What is learnt is not what is sampled.",
        similar="A wrong table is a mixture in wrong proportions.",
        limits="Changes of less than 2 %.",
        fix=TABLE,
        needs=((checks.FORWARD_WRONG, checks.FORWARD_INPUT_ERROR, checks.NONFINITE["x_t"]),),
        detect=first_of(
            not_finite,
            on_kind("not-the-formula", "x_t is not made of the image and the noise that the loop passes."),
            on_episode(
                lambda run: run.episode(checks.FORWARD_INPUT_ERROR, lambda numbers: ~(numbers <= 0.05), 2),
                "The input of the network is not x_t.",
                "a scaled input: a factor for each sample is allowed for",
                evidence={checks.FORWARD_INPUT_ERROR: "0"},
            ),
        ),
        explained_by="scale.integer data.nonfinite",
    ),
    error_rule(
        "FOR005",
        "forward.noise-not-normal",
        "Noise that is not normal",
        what="Mean, deviation or kurtosis of the noise are not those of a standard normal.",
        why="Sampling begins from a standard normal, which the network then has never seen.",
        similar="Offset noise moves the mean of single images, not of all of them.",
        limits="Noise that is correlated between pixels.",
        fix="torch.randn_like, not rand_like.",
        needs=(checks.NOISE_COUNT, checks.NOISE_MEAN, checks.NOISE_STD, checks.NOISE_KURTOSIS),
        detect=not_normal,
        explained_by="forward.noise-repeated",
    ),
    error_rule(
        "FOR006",
        "forward.noise-repeated",
        "The same noise again",
        what="Noise comes back from step to step, or is the same for all samples of a batch or all pixels of an image.",
        why="The network memorises that noise: the loss falls fast, and samples fail.",
        similar="The same images in every batch, or the same timesteps, are reported by their own names.",
        limits="Repeats after more than 4,096 steps.",
        fix="Draw new noise for every sample of every step; do not seed inside the loop.",
        needs=((checks.NOISE_BETWEEN, checks.NOISE_WITHIN, checks.STREAM_AGAIN["noise"]),),
        detect=first_of(
            _one_draw_for(checks.NOISE_BETWEEN, "all samples of a batch"),
            _one_draw_for(checks.NOISE_WITHIN, "all pixels of an image"),
            on_count(
                checks.STREAM_AGAIN["noise"],
                3,
                "The noise of {} steps had been drawn before, number for number: the random generator is reset.",
                "chance: two draws of noise are never the same",
            ),
        ),
    ),
    error_rule(
        "FOR007",
        "forward.input-not-scaled",
        "The network's input is not scaled by c_in",
        what="EDM: the network is called with x_t itself, or with another multiple of it than c_in·x_t.",
        why="Its input has a deviation of σ, up to 80, and samplers show it one of 1.",
        similar="A variance-exploding process with another target than EDM's may be shown x_t as it is.",
        limits="Loops that do not pass x0 and noise, or whose calls are not seen.",
        fix="Call the network with x_t / sqrt(σ² + sigma_data²).",
        needs=((checks.FORWARD_INPUT_SCALE, checks.FORWARD_INNER_SCALE, checks.MIXTURE_PROCESS),),
        detect=first_of(
            on_episode(
                lambda run: run.episode(checks.FORWARD_INNER_SCALE, lambda numbers: ~(numbers <= 0.05), 2),
                "The answer is EDM's c_skip·x_t + c_out·F, but the network inside does not see c_in·x_t: its input has "
                "another size than F is made for.",
                evidence={checks.FORWARD_INNER_SCALE: "0"},
            ),
            on_episode(
                lambda run: run.episode(checks.FORWARD_INPUT_SCALE, lambda numbers: ~(numbers <= 0.05), 2),
                "The network does not see c_in·x_t: its input has another size than the process says.",
                evidence={checks.FORWARD_INPUT_SCALE: "0", checks.FORWARD_INPUT_ERROR: "0"},
            ),
            on_latest(
                {checks.MIXTURE_PROCESS: None, checks.MIXTURE_ROW: None},
                lambda process, row: process == PLAIN_SIGMA and row in EDM_ROWS,
                "The target is that of EDM's preconditioned network, but the network is shown x_t = x0 + σ·noise as it "
                "is, without c_in.",
            ),
        ),
        explained_by="forward.other forward.not-the forward.no-noise forward.clamped timesteps.",
    ),
    error_rule(
        "TIM008",
        "timesteps.scaled",
        "Times that are scaled twice",
        what="Flow matching: the network is told a million times the noise, or a thousandth of it.",
        why="Embeddings are made for times up to 1 or up to 1,000.",
        similar="t, 1,000·t and any other function of the noise within that range are healthy.",
        limits="Loops that do not pass x0 and noise.",
        fix="Multiply by 1,000 once: in the loop, in the model or in the scheduler.",
        needs=(checks.MIXTURE_TIME_FACTOR,),
        detect=on_latest(
            {checks.MIXTURE_TIME_FACTOR: "1 to 1,000"},
            lambda factor: not 0.01 < abs(factor) < 20_000,
            "The network is told {:.4g} times the share of noise: times are multiplied by 1,000 twice, or divided.",
        ),
        explained_by="model.embedding",
    ),
    warning_rule(
        "TIM009",
        "timesteps.density-swapped",
        "P_mean and P_std are swapped",
        what="log σ has a mean of 1.2 and a deviation of 1.2: EDM's P_mean = −1.2 and P_std = 1.2 the wrong way round.",
        why="Hardly any sample has little noise: details are never learnt.",
        similar="Latents and videos are trained with means of −0.4 to 1, and other deviations.",
        limits="Other pairs than the published one.",
        fix="σ = exp(P_mean + P_std·randn) with P_mean = −1.2 and P_std = 1.2.",
        needs=(checks.MIXTURE_LOG_MEAN, checks.MIXTURE_LOG_DEVIATION, checks.MIXTURE_DRAWS),
        detect=on_latest(
            {checks.MIXTURE_LOG_MEAN: "-1.2", checks.MIXTURE_LOG_DEVIATION: "1.2"},
            lambda mean, deviation, draws: max(abs(mean - 1.2), abs(deviation - 1.2)) < 4 * 1.2 / max(draws, 1) ** 0.5,
            "log σ has a mean of {:.2f} and a deviation of {:.2f}: EDM's −1.2 and 1.2 with swapped places.",
            also=(checks.MIXTURE_DRAWS,),
        ),
    ),
    error_rule(
        "TIM001",
        "timesteps.gap",
        "Timesteps that are never drawn",
        what="A part of the schedule is never trained.",
        why="Samples pass through all of it: they fail where nothing was learnt.",
        similar="Draws that favour the middle still reach the ends.",
        limits="Gaps of less than 8 %.",
        fix="torch.randint(0, timesteps, …): the upper end is exclusive.",
        needs=(
            Reaching(checks.STREAM_TIMES_DRAWN, SOME_DRAWS, "draws of times"),
            (checks.STREAM_TIMES_GAP, checks.STREAM_TIMES_KINDS),
        ),
        detect=gap_in_times,
        explained_by="timesteps.repeated timesteps.constant forward.noise-repeated timesteps.out-of-range",
    ),
    error_rule(
        "TIM002",
        "timesteps.shuffled",
        "Timesteps of other samples",
        what="The noise levels of a batch are right, but belong to other samples than the timesteps say.",
        why="The network gets a wrong noise level for every image and learns to ignore it.",
        similar="A wrong schedule has wrong levels in the right order.",
        fix="Use the same t for noising and for the call, in the same order.",
        needs=(checks.FORWARD_WRONG, checks.FORWARD_RESIDUAL, checks.FORWARD_ORDER),
        detect=on_kind(
            "shuffled",
            "The timesteps are those of other samples: the noise levels of a batch are right, in another "
            "order. The network gets the wrong level for every image.",
        ),
        explained_by="timesteps.out-of-range",
    ),
    error_rule(
        "TIM003",
        "timesteps.repeated",
        "The same timesteps again",
        what="The timesteps of a step are those of a step before, all of them.",
        why="Only these noise levels are learnt.",
        similar="A constant timestep is the same within the batch too.",
        fix="Do not seed inside the loop, nor after a validation; use a generator of its own for that.",
        needs=(checks.STREAM_TIMES_AGAIN,),
        detect=times_repeated,
    ),
    error_rule(
        "TIM004",
        "timesteps.constant",
        "One timestep for everything",
        what="Every sample of every step has the same timestep.",
        why="Only one noise level is learnt.",
        similar="One timestep for a batch, another for the next, is slow but healthy.",
        fix="torch.randint(0, timesteps, (len(x0),)).",
        needs=(checks.STREAM_TIMES_DRAWN, checks.STREAM_TIMES_LOWEST, checks.STREAM_TIMES_HIGHEST),
        detect=on_latest(
            {checks.STREAM_TIMES_LOWEST: None, checks.STREAM_TIMES_HIGHEST: None},
            lambda low, high, drawn: low == high and drawn >= 4,
            "The timestep is {:.4g} in every sample of every step: only one noise level is learnt.",
            also=(checks.STREAM_TIMES_DRAWN,),
            step=0,
        ),
    ),
    error_rule(
        "TIM005",
        "timesteps.out-of-range",
        "Timesteps that the schedule does not have",
        what="Timesteps below 0 or beyond the end of the table.",
        why="A negative index is another noise level; one beyond the end an error.",
        fix="torch.randint(0, timesteps, …).",
        needs=(checks.STREAM_TIMES_OUTSIDE,),
        detect=out_of_range,
    ),
    error_rule(
        "TIM006",
        "timesteps.not-passed-on",
        "The network gets another timestep",
        what="The order of the timesteps in the call of the network is not that of the timesteps of x_t.",
        why="The network cannot know the noise level.",
        similar="Scaled timesteps, or sigmas, keep the order. A network that ignores its timestep is called correctly.",
        limits="A scale that the embedding cannot resolve: that is model.embedding-collapsed.",
        fix="Call the model with the t of the noising.",
        needs=(checks.TIMESTEPS_PASSED_ON,),
        detect=on_episode(
            lambda run: run.episode(checks.TIMESTEPS_PASSED_ON, lambda numbers: np.abs(numbers) < 0.9, 2),
            "The network is called with other timesteps than x_t was made with, and they are not scaled ones: it "
            "cannot know the noise level.",
            evidence={checks.TIMESTEPS_PASSED_ON: "1"},
        ),
    ),
    error_rule(
        "TIM007",
        "timesteps.not-the-noise",
        "A time that does not follow the noise",
        what="The network's time is no function of the noise in its input.",
        why="The network is shown a wrong noise level, and learns to ignore it.",
        similar="Any function that rises or falls with the noise is healthy: t, 1 − t, sigma, log-SNR.",
        limits="Loops that do not pass x0 and noise; networks that are not shown a time.",
        fix="Call the model with the time that x_t was made with, in the same order.",
        needs=(checks.MIXTURE_TIME,),
        detect=on_episode(
            lambda run: run.episode(checks.MIXTURE_TIME, lambda numbers: numbers == 0),
            "The time that the network is called with does not follow the noise in its input: samples with one time "
            "have different noise, or more noise has now a later time and now an earlier one.",
            evidence={checks.MIXTURE_TIME: "1 or -1", checks.MIXTURE_INPUT: "0"},
        ),
        explained_by="timesteps.constant timesteps.shuffled timesteps.not-passed-on timesteps.out-of-range forward",
    ),
)
