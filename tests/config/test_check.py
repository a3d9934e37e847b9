from __future__ import annotations

import math
from dataclasses import replace

import pytest

from safelight.config import Config
from safelight.config.check import BELOW_ONE, check, initial_share, keys_in_range
from safelight.config.resolve import flatten, resolve, to_dict
from safelight.errors import UsageError

POSITIVE, NOT_NEGATIVE, SHARES = map(keys_in_range, ("positive", "not negative", "share"))


def refusal(settings: dict[str, object], preset: str | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        check(resolve(preset=preset, settings=settings))
    return str(caught.value)


# settings that cannot work, what the message must contain: the key, the value and a way out
REFUSED = [
    ({"data.image_size": 30}, ["data.image_size is 30", "multiple of 4", "Use 28 or 32"]),
    ({"data.image_size": 3}, ["data.image_size is 3", "Use 4"]),
    ({"data.image_size": 9, "model.widths": "32 64"}, ["data.image_size is 9", "Use 8 or 10"]),
    ({"diffusion.zero_terminal_snr": True, "diffusion.prediction": "epsilon"}, ["Use v_prediction or sample"]),
    ({"diffusion.process": "flow", "diffusion.prediction": "epsilon"}, ["diffusion.process flow", "Use v_prediction"]),
    (
        {"diffusion.process": "flow", "sample.sampler": "ddim"},
        ["sample.sampler is ddim", "euler, heun and dpm-solver++"],
    ),
    ({"sample.sampler": "euler"}, ["sample.sampler is euler", "ddim, ddpm and dpm-solver++"]),
    ({"diffusion.density": "log-normal"}, ["diffusion.density log-normal", "Use uniform or logit-normal"]),
    ({"diffusion.shift": 3}, ["diffusion.shift is 3", "Use 1"]),
    ({"diffusion.sigma_data": 0.7}, ["diffusion.sigma_data is 0.7", "Leave it out"]),
    (
        {"diffusion.process": "edm", "diffusion.zero_terminal_snr": True},
        ["diffusion.zero_terminal_snr", "Leave it out"],
    ),
    ({"diffusion.timesteps": 1, "sample.steps": 1}, ["diffusion.timesteps is 1", "at least 2"]),
    ({"diffusion.timesteps": 10}, ["sample.steps is 15", "only 10 timesteps", "Use at most 10"]),
    (
        {"ema.kind": "exponential", "ema.warmup": False, "train.steps": 1000},
        ["ema.decay 0.9999", "1000 steps", "90%", "ema.kind power, or ema.warmup true"],
    ),
    ({"ema.width": 0}, ["ema.width is 0.0", "between 0.001 and 0.28", "default is 0.1"]),
    ({"ema.width": 0.3}, ["ema.width is 0.3", "between 0.001 and 0.28"]),
    ({"ema.width": 1e-200}, ["ema.width is 1e-200", "between 0.001 and 0.28"]),
    ({"ema.profiles": "0.1 0.1"}, ["ema.profiles are (0.1, 0.1)", "two different widths"]),
    ({"ema.profiles": "0.1 0.5"}, ["ema.profiles are (0.1, 0.5)", "between 0.001 and 0.28"]),
    ({"model.widths": ""}, ["model.widths is ()", "at least one positive"]),
    ({"model.widths": "64 0 64"}, ["model.widths is (64, 0, 64)", "positive"]),
    ({"model.widths": "64 -8 64"}, ["(64, -8, 64)"]),
    ({"model.norm_groups": 48}, ["model.norm_groups is 48", "does not divide the width 64", "Use one of 1, 2, 4, 8"]),
    ({"model.widths": "64 100 128"}, ["model.norm_groups is 32", "width 100", "Use one of 1, 2, 4."]),
    (
        {"model.widths": "32 32"},
        ["model.norm_groups is 32, as is every width", "removes the timestep", "Use one of 1, 2, 4, 8, 16."],
    ),
    ({"model.widths": "1000000000001", "model.attention": ""}, ["model.norm_groups is 32", "Use one of 1"]),
    ({"model.attention": "7"}, ["model.attention is set to 7 px", "32, 16, 8 px", "such as model.attention=8"]),
    (
        {"data.image_size": 28, "model.attention": (8,)},
        ["model.attention is set to 8 px", "28, 14, 7 px", "such as model.attention=7"],
    ),
    ({"model.conditional": True, "data.classes": 0}, ["model.conditional is true", "subfolder"]),
    ({"train.accumulate": 0}, ["train.accumulate is 0", "at least 1, or auto"]),
    ({"train.accumulate": 5}, ["train.batch_size is 64", "5 micro-batches", "Use 60 or 65"]),
    ({"train.accumulate": 128}, ["train.batch_size is 64", "Use 128"]),
    ({"optimizer.warmup": 20_000}, ["optimizer.warmup is 20000", "20000", "Use at most 2000, or leave it unset"]),
    ({"clipping.lowest": 11}, ["clipping.lowest is 11", "clipping.highest, 10"]),
    ({"data.channels": 2}, ["data.channels is 2", "1 (grey) or 3 (colour)"]),
    ({"data.background": "#12345"}, ["data.background is '#12345'", "#rrggbb"]),
    ({"data.background": "red"}, ["data.background is 'red'", "white, black, grey"]),
    ({"train.threads": 0}, ["train.threads is 0", "at least 1"]),
]


@pytest.mark.parametrize(("settings", "words"), REFUSED, ids=lambda v: str(v) if isinstance(v, dict) else "")
def test_what_cannot_work_is_refused_with_a_way_out(settings: dict, words: list[str]) -> None:
    message = refusal(settings)
    assert all(word in message for word in words), message
    assert len(message) < 400


# the near misses of the table above
HEALTHY = [
    {"data.image_size": 28, "model.attention": "7"},
    {"data.image_size": 4, "model.attention": ""},
    {"diffusion.zero_terminal_snr": True},
    {"diffusion.zero_terminal_snr": True, "diffusion.prediction": "sample"},
    {"diffusion.prediction": "epsilon"},
    {"diffusion.prediction": "epsilon", "diffusion.process": "edm"},
    {"diffusion.process": "flow", "diffusion.timesteps": 10, "diffusion.shift": 3, "sample.sampler": "heun"},
    {"diffusion.weighting": "edm", "diffusion.sigma_data": 0.7},
    {"sample.every": 0, "evaluate.every": 0},
    {"diffusion.process": "edm", "diffusion.density": "log-normal"},
    {"diffusion.density": "logit-normal"},
    {"diffusion.timesteps": 50},
    {"diffusion.timesteps": 2, "sample.steps": 2},
    {"ema.kind": "exponential", "train.steps": 1000},
    {"ema.kind": "exponential", "ema.warmup": False, "train.steps": 100_000},
    {"ema.kind": "exponential", "ema.decay": 0.5},
    {"ema.width": 0.28},
    {"ema.width": 0.001},
    {"model.attention": ""},
    {"model.attention": "32 16 8"},
    {"model.norm_groups": 1},
    {"model.widths": "32 64", "model.attention": ""},  # in one of them the timestep arrives
    {"model.conditional": True},
    {"train.accumulate": 64},
    {"train.accumulate": "auto"},
    {"optimizer.warmup": 19_999},
    {"optimizer.warmup": 0},
    {"train.steps": 1},
    {"train.steps": 1, "checkpoint.every": 5, "sample.every": 5},
    {"clipping.lowest": 10},
    {"data.channels": 1},
    {"data.background": "#20A0ff"},
    {"train.threads": 1},
    {"model.dropout": 1.0},
    {"optimizer.beta1": 0.0},
    {"model.conditional": True, "sample.guidance": 0.0},
]


@pytest.mark.parametrize("settings", HEALTHY, ids=str)
def test_near_misses_pass_without_a_word(settings: dict) -> None:
    assert check(resolve(settings=settings)) == []


RANGES = (
    [(key, bad) for key in POSITIVE for bad in (0, -1)]
    + [(key, -1) for key in NOT_NEGATIVE]
    + [(key, bad) for key in SHARES for bad in (-0.01, 1.01)]
    + [(key, 1.0) for key in BELOW_ONE]
)


@pytest.mark.parametrize(("key", "bad"), RANGES)
def test_numbers_out_of_range(key: str, bad: float) -> None:
    message = refusal({key: bad})
    assert f"{key} is {bad:g}" in message.replace(".0,", ",")
    assert "must" in message


NUMBERS = [key for key, value in flatten(to_dict(Config())).items() if isinstance(value, float)]


@pytest.mark.parametrize("key", NUMBERS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_notebook_cannot_slip_in_what_is_not_finite(key: str, bad: float) -> None:
    """A config made in Python never passes through `resolve`."""
    section, _, name = key.partition(".")
    config = replace(Config(), **{section: replace(getattr(Config(), section), **{name: bad})})
    with pytest.raises(UsageError, match=key):
        check(config)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"ema.kind": "exponential", "ema.warmup": False, "train.steps": 20_000},
            ["ema.decay 0.9999", "14%", "ema.warmup true"],
        ),
        ({"model.conditional": True, "model.label_drop": 0, "sample.guidance": 2.0}, ["model.label_drop is 0"]),
    ],
    ids=str,
)
def test_what_probably_will_not_work_is_reported(settings: dict, words: list[str]) -> None:
    warnings = check(resolve(settings=settings))
    assert len(warnings) == 1
    assert all(word in warnings[0] for word in words), warnings


@pytest.mark.parametrize(
    ("settings", "share"),
    [
        ({"ema.kind": "exponential", "ema.warmup": False, "train.steps": 10_000}, 0.368),
        ({"ema.kind": "exponential", "ema.warmup": True, "train.steps": 10_000}, 0.0),
        ({"ema.kind": "power", "train.steps": 10}, 0.0),
    ],
    ids=str,
)
def test_share_of_initialisation(settings: dict, share: float) -> None:
    assert initial_share(resolve(settings=settings)) == pytest.approx(share, abs=0.001)
