"""Timesteps that are never drawn, drawn again, or not those of the noise."""

from __future__ import annotations

import numpy as np

from safelight import checks
from safelight.diagnosis.finding import Evidence
from safelight.diagnosis.rule import (
    CountAtLeast,
    Detection,
    error_rule,
    on_count,
    on_episode,
    on_latest,
    warning_rule,
)
from safelight.diagnosis.rules.noising.kinds import on_kind
from safelight.diagnosis.run_history import RunHistory, name_of

FEW_KINDS = 0.25  # of the timesteps that uniform draws would find; logit-normal draws find 0.8
SOME_DRAWS = 200  # draws: with fewer nothing is said
MAX_GAP, FEW_DRAWS = 0.08, 1000  # share of the timesteps that none of so many draws hit; logit-normal draws leave 0.04


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


RULES = (
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
            CountAtLeast(checks.STREAM_TIMES_DRAWN, SOME_DRAWS, "draws of times"),
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
