"""Histories for the rules of noising: sick, healthy and nearly sick."""

from __future__ import annotations

import numpy as np
import pytest
from histories import STEPS, broken, checks
from rule_rows import Row, case_of, check_row, fires_in, parameters, row, without

from safelight.diagnosis.doctor import examine
from safelight.diagnosis.rules import noising

WRONG = checks(forward__wrong=np.ones(16), forward__error=np.full(16, 0.5))

ROWS = [
    row("another table", "forward.other-schedule", WRONG),
    row("bf16 rounds", "", checks(forward__error=np.full(16, 0.004), forward__residual=np.full(16, 0.004))),
    row("one sample of thirty is off", "", checks(forward__wrong=np.full(16, 1 / 32))),
    row("clamped", "forward.clamped", WRONG | checks(forward__at_limit=np.full(16, 0.3),
        forward__residual=np.full(16, 0.2))),
    row("no noise", "forward.no-noise", WRONG | checks(forward__clean=np.zeros(16), forward__noise_seen=np.zeros(16))),
    row("clean samples among others", "forward.other-schedule",
        checks(forward__wrong=np.full(16, 0.1), forward__clean=np.zeros(16))),
    row("not the formula", "forward.not-the-formula", WRONG | checks(forward__residual=np.full(16, 0.3))),
    row("random parts", "forward.not-the-formula", WRONG | checks(forward__rough=np.full(16, 1.0))),
    row("the network is shown something else", "forward.not-the-formula",
        checks(forward__input_error=np.full(16, 0.5))),
    row("no numbers, of images and noise that are", "forward.not-the-formula",
        checks(finite__x_t=([50], [0]), finite__pred=([50], [0]), batch__reach=([49, 50], [1.0, 1.0]),
            loss__error=([49, 50, 51], [1, np.nan, np.nan])), events=broken([50, 51])),
    row("no numbers, of noise that is none", "loss.nonfinite",
        checks(finite__x_t=([50], [0]), finite__noise=([50], [0]), batch__reach=([49, 50], [1.0, 1.0]),
            loss__error=([49, 50, 51], [1, np.nan, np.nan])), events=broken([50, 51])),
    row("no numbers, of what nobody saw", "loss.nonfinite",
        checks(finite__x_t=([50], [0]), loss__error=([49, 50, 51], [1, np.nan, np.nan])), events=broken([50, 51])),
    row("no numbers, made by a network that is broken", "loss.nonfinite",
        checks(finite__x_t=([51], [0]), batch__reach=([50, 51], [1.0, 1.0]),
            loss__error=([49, 50, 51], [1, 1, np.nan])), events=broken([50, 51])),
    row("another table for a while", "forward.other-schedule", WRONG | checks(forward__wrong=[0, 0, 1, 1, 0, 0, 0, 0])),
    row("shuffled", "timesteps.shuffled", WRONG | checks(forward__order=np.full(16, 1e-7),
        forward__order_error=np.full(16, 0.3), forward__rough=np.full(16, 1.0))),
    row("uniform noise", "forward.noise-not-normal", checks(noise__mean=np.full(16, 0.5),
        noise__std=np.full(16, 0.289), noise__kurtosis=np.full(16, 1.8))),
    row("offset noise", "", checks(noise__std=np.full(16, 1.005), noise__kurtosis=np.full(16, 3.02))),
    row("few numbers of noise", "", checks(noise__mean=np.full(16, 0.3), noise__count=np.full(16, 16.0))),
    row("the same noise for all samples", "forward.noise-repeated", checks(noise__between=np.zeros(16))),
    row("the same noise for all pixels", "forward.noise-repeated", checks(noise__within=np.zeros(16))),
    row("the same noise at every step", "forward.noise-repeated",
        checks(stream__noise_again=(STEPS[1:], np.ones(127)))),
    row("the same noise twice", "", checks(stream__noise_again=([7, 9], [1, 1]))),
    row("timesteps are never drawn", "timesteps.gap", checks(stream__times_gap=([0, 127], [0.5, 0.5]))),
    row("ten timesteps of a thousand", "timesteps.gap",
        checks(stream__times_kinds=([0, 127], [0.2, 0.02]), stream__times_gap=([0, 127], [0.5, 0.06]))),
    row("fewer timesteps than chance finds", "", checks(stream__times_kinds=([0, 127], [0.5, 0.5]))),
    row("a gap of few draws", "", checks(stream__times_gap=([0, 127], [0.5, 0.2]),
        stream__times_drawn=([0, 127], [8, 600]))),
    row("draws that favour the middle", "", checks(stream__times_gap=([0, 127], [0.5, 0.04]))),
    row("the same timesteps at every step", "timesteps.repeated", checks(stream__times_again=(STEPS[1:], np.ones(127)),
        stream__times_gap=([0, 127], [0.5, 0.5]))),
    row("one timestep", "timesteps.constant", checks(stream__times_lowest=([0, 127], [500, 500]),
        stream__times_highest=([0, 127], [500, 500]), stream__times_gap=([0, 127], [0.5, 0.5]),
        stream__times_again=(STEPS[1:], np.ones(127)))),
    row("timesteps beyond the end", "timesteps.out-of-range", checks(stream__times_outside=([3, 9], [0.1, 0.1]))),
    row("another timestep is passed on", "timesteps.not-passed-on", checks(timesteps__passed_on=np.zeros(16))),
    row("a timestep that ties changes places", "", checks(timesteps__passed_on=np.full(16, 0.95))),
    row("a time that does not follow the noise", "timesteps.not-the-noise", checks(mixture__input=0, mixture__time=0)),
    row("EDM without c_in, declared", "forward.input-not-scaled", checks(forward__input_scale=np.full(16, 3.0))),
    row("EDM without c_in, inside of the network", "forward.input-not-scaled",
        checks(forward__inner_scale=np.full(16, 3.0))),
    row("EDM with c_in, inside of the network", "", checks(forward__inner_scale=np.zeros(16))),
    row("EDM with c_in in bf16", "", checks(forward__input_scale=np.full(16, 0.004))),
    row("EDM without c_in", "forward.input-not-scaled", checks(mixture__process=2, mixture__row=5)),
    row("x0 + sigma·noise with another target", "", checks(mixture__process=2, mixture__row=0)),
    row("times that are scaled twice", "timesteps.scaled", checks(mixture__time_factor=1e6)),
    row("times that are divided", "timesteps.scaled", checks(mixture__time_factor=1e-3)),
    row("t in [0, 1]", "", checks(mixture__time_factor=1)),
    row("P_mean for P_std", "timesteps.density-swapped",
        checks(mixture__log_mean=1.23, mixture__log_deviation=1.18, mixture__draws=512)),
    row("EDM's own density", "", checks(mixture__log_mean=-1.2, mixture__log_deviation=1.2, mixture__draws=512)),
    row("a density of videos", "", checks(mixture__log_mean=1.0, mixture__log_deviation=1.6, mixture__draws=512)),
    row("clamped, undeclared", "forward.clamped",
        without("check/forward") | checks(forward__at_limit=np.full(16, 0.3), mixture__input=0.2), whole=True),
    row("no noise, undeclared", "forward.no-noise",
        without("check/forward") | checks(forward__clean=np.zeros(16)), whole=True),
    row("a sample without noise, undeclared", "",
        without("check/forward") | checks(forward__clean=np.full(16, 0.4), forward__at_limit=np.full(16, 0.001)),
        whole=True),
    row("a time that falls with the noise", "", checks(mixture__input=0, mixture__time=-1)),
]  # fmt: skip


@pytest.mark.parametrize("given", parameters(ROWS))
def test_the_cause_is_named_and_nothing_else(given: Row) -> None:
    check_row(given)


@pytest.mark.parametrize(
    ("roots", "words"),
    [
        ({}, "training and sampling use different tables"),
        ({"forward__clean_root": np.zeros(16)}, "x_t = ᾱ·x0 + √(1 − ᾱ)·noise, "),
        ({"forward__noise_root": np.zeros(16)}, "a square root is missing"),
        ({"forward__clean_root": np.zeros(16), "forward__noise_root": np.zeros(16)}, "x_t = ᾱ·x0 + (1 − ᾱ)·noise, "),
    ],
)
def test_a_missing_square_root_is_named(roots: dict[str, np.ndarray], words: str) -> None:
    table = checks(schedule__timesteps=([0], [1000.0]))
    finding = next(each for each in examine(case_of(row("", "", WRONG | table | checks(**roots)))))
    assert finding.code == "FOR001"
    assert words in finding.summary


def test_every_rule_fires_in_some_row() -> None:
    assert fires_in(ROWS) >= {rule.cause for rule in noising.RULES}
