"""Times by their inverse distribution function: the density that was asked for, evenly spread in every batch."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import pytest
import torch
from torch import Tensor

from safelight.config.tree import Diffusion
from safelight.diffusion.densities import make_time_quantile
from safelight.diffusion.draws import draw_times

FLOW = {"process": "flow", "prediction": "flow"}
EDM = {"process": "edm", "prediction": "edm"}
EVERY: list[dict[str, Any]] = [
    {},
    {"density": "logit-normal"},
    FLOW,
    FLOW | {"density": "logit-normal"},
    FLOW | {"density": "logit-normal", "density_mean": 0.5, "density_std": 0.7, "shift": 3.0},
    EDM,
    EDM | {"density": "log-normal"},
    EDM | {"density": "log-normal", "density_mean": -0.4, "density_std": 1.0},
]
PLACES = torch.linspace(0, 1, 1001, dtype=torch.float64)[:-1]


@pytest.mark.parametrize("settings", EVERY, ids=str)
def test_times_never_fall_and_stay_in_the_process(settings: dict[str, Any]) -> None:
    chosen = Diffusion(**settings)
    times = make_time_quantile(chosen)(PLACES)
    assert (times.diff() >= 0).all()
    low, high = {"vp": (0, 999), "flow": (0, 1), "edm": (0.002, 80.0)}[chosen.process]
    assert low <= float(times.min()) + 1e-9
    assert float(times.max()) <= high
    assert times.is_floating_point() == (chosen.process != "vp")


@pytest.mark.parametrize(
    ("settings", "place", "expected"),
    [
        (FLOW, 0.25, 0.25),
        (FLOW | {"shift": 3.0}, 0.5, 0.75),
        (FLOW | {"density": "logit-normal"}, 0.5, 0.5),
        (FLOW | {"density": "logit-normal"}, NormalDist().cdf(1.0), 0.7310586),
        (FLOW | {"density": "logit-normal", "density_mean": 1.0}, 0.5, 0.7310586),
        (EDM, 0.5, (0.002 * 80) ** 0.5),
        (EDM | {"density": "log-normal"}, 0.5, 0.3011942),
        (EDM | {"density": "log-normal"}, NormalDist().cdf(1.0), 1.0),
        ({}, 0.5, 500),
        ({"density": "logit-normal"}, NormalDist().cdf(1.0), 731),
    ],
    ids=str,
)
def test_quantiles(settings: dict[str, Any], place: float, expected: float) -> None:
    found = make_time_quantile(Diffusion(**settings))(torch.tensor([place], dtype=torch.float64))
    assert float(found) == pytest.approx(expected, rel=1e-5)


def drawn(settings: dict[str, Any], step: int = 3, sampling: Any = "stratified", count: int = 16) -> Tensor:
    return draw_times(sampling, make_time_quantile(Diffusion(**settings)), seed=0, step=step, batch_size=count)


@pytest.mark.parametrize("settings", EVERY, ids=str)
def test_a_stratified_batch_has_one_time_in_each_slice_of_equal_probability(settings: dict[str, Any]) -> None:
    ends = make_time_quantile(Diffusion(**settings))(torch.arange(16, dtype=torch.float64) / 16)
    slices = torch.searchsorted(ends.contiguous(), drawn(settings), right=True) - 1
    assert sorted(slices.tolist()) == list(range(16))
    by_chance = torch.searchsorted(ends.contiguous(), drawn(settings, sampling="uniform"), right=True) - 1
    assert sorted(by_chance.tolist()) != list(range(16)), "control"


@pytest.mark.parametrize("settings", EVERY, ids=str)
def test_a_draw_is_a_function_of_seed_and_step(settings: dict[str, Any]) -> None:
    before = torch.random.get_rng_state()
    assert torch.equal(drawn(settings), drawn(settings))
    assert not torch.equal(drawn(settings), drawn(settings, step=4))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_ends_are_finite() -> None:
    for settings in EVERY:
        ends = make_time_quantile(Diffusion(**settings))(torch.tensor([0.0, 1.0], dtype=torch.float64))
        assert ends.isfinite().all(), settings
