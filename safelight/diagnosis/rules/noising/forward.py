"""Noised images, noise and inputs that are not what the process says."""

from __future__ import annotations

import numpy as np

from safelight import checks
from safelight.diagnosis.budget import bound
from safelight.diagnosis.finding import Evidence, Fix
from safelight.diagnosis.nonfinite import first_steps
from safelight.diagnosis.rule import (
    Detection,
    Detector,
    error_rule,
    first_of,
    on_count,
    on_episode,
    on_latest,
)
from safelight.diagnosis.rules.noising.kinds import AT_LIMIT, on_kind
from safelight.diagnosis.run_history import Episode, RunHistory, name_of

SQUARED = 0.01  # mean distance of a factor from a table's squared; that of its root is 0.05 and more
CERTAIN = 6.0  # standard errors, at the least
PLAIN_SIGMA = checks.PROCESSES.index("ve")
EDM_ROWS = (checks.TARGET_ROWS.index("edm"), checks.TARGET_ROWS.index("-edm"))
CLAMPED = "x_t was clamped: the noise that the network should find is cut off."
CLEAN = "There is no noise in x_t: the network is shown clean images at every timestep."
TABLE = "Use the schedule of the sampler: scheduler.add_noise(x0, noise, t)."


def not_finite(run: RunHistory) -> Detection | None:
    images = set(run.steps(checks.BATCH_ABS_MAX).tolist())
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


def _one_draw_for(check: checks.ProbeReading, what: str) -> Detector:
    summary = f"One draw of noise is used for {what}."
    return on_episode(lambda run: run.episode(check, lambda numbers: numbers < 1e-6), summary, evidence={check: "1"})


def _undeclared(detect: Detector) -> Detector:
    """Where x_t is compared with nothing."""
    return lambda run: None if len(run.steps(checks.FORWARD_WRONG)) else detect(run)


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
)
