from __future__ import annotations

from typing import get_args

import pytest
import torch

from safelight.config.tree import Diffusion, Schedule
from safelight.diffusion.schedule import LARGEST_BETA, AlphasCumprod, make_schedule

NAMES = get_args(Schedule)
COUNTS = (2, 10, 50, 333, 1000, 4000)
PUBLISHED = {
    "linear": {"beta_schedule": "linear"},
    "scaled-linear": {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012},
    "cosine": {"beta_schedule": "squaredcos_cap_v2"},
}
EVERY = [(name, count, zero) for name in NAMES for count in COUNTS for zero in (False, True)]


def schedule(name: str, count: int = 1000, zero: bool = False) -> AlphasCumprod:
    return make_schedule(Diffusion(schedule=name, timesteps=count, zero_terminal_snr=zero))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", PUBLISHED)
def test_is_the_published_table(name: str) -> None:
    from diffusers import DDPMScheduler

    theirs = DDPMScheduler(num_train_timesteps=1000, **PUBLISHED[name])
    ours = schedule(name)
    assert (ours.alphas_cumprod - theirs.alphas_cumprod).abs().max() < 1e-6
    assert (ours.betas - theirs.betas).abs().max() < 1e-6


def test_the_comparison_tells_tables_apart() -> None:
    """Negative control: the nearest wrong table (0.012 instead of 0.02) is 500,000 times the tolerance away."""
    from diffusers import DDPMScheduler

    theirs = DDPMScheduler(num_train_timesteps=1000, beta_schedule="linear", beta_end=0.012)
    assert (schedule("linear").alphas_cumprod - theirs.alphas_cumprod).abs().max() > 0.1


@pytest.mark.parametrize(("name", "count", "zero"), EVERY)
def test_every_table_is_sound(name: str, count: int, zero: bool) -> None:
    table = schedule(name, count, zero)
    assert len(table) == count
    assert table.alphas_cumprod.dtype == torch.float64
    assert (table.alphas_cumprod.diff() < 0).all(), "signal must fall at every step"
    assert 0 < table.alphas_cumprod[0] < 1
    assert torch.allclose(
        table.signal_scale**2 + table.noise_scale**2, torch.ones(count, dtype=torch.float64), atol=1e-15, rtol=0
    )
    assert (table.snr.diff() < 0).all()
    assert table.snr.isfinite().all()
    assert (table.betas > 0).all()
    assert (table.betas <= 1).all()


@pytest.mark.parametrize(("name", "count", "zero"), EVERY)
def test_betas_lead_back_to_the_table(name: str, count: int, zero: bool) -> None:
    """Samplers and exported pipelines get the betas: they must say the same as the table."""
    table = schedule(name, count, zero)
    assert torch.allclose((1 - table.betas).cumprod(0), table.alphas_cumprod, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("name", NAMES)
def test_only_zero_terminal_snr_reaches_a_beta_of_one(name: str) -> None:
    assert schedule(name).betas.max() <= LARGEST_BETA + 1e-12
    assert schedule(name, zero=True).betas[-1] == 1


@pytest.mark.parametrize(("name", "count"), [(name, count) for name in NAMES for count in COUNTS])
def test_zero_terminal_snr_ends_at_zero_and_begins_where_it_began(name: str, count: int) -> None:
    plain, zero = schedule(name, count), schedule(name, count, zero=True)
    assert plain.snr[-1] > 0
    assert zero.alphas_cumprod[-1] == 0
    assert zero.snr[-1] == 0
    assert zero.noise_scale[-1] == 1
    assert abs(zero.signal_scale[0] - plain.signal_scale[0]) < 1e-15
    assert (zero.alphas_cumprod[1:] < plain.alphas_cumprod[1:]).all()


@pytest.mark.parametrize("name", ["linear", "scaled-linear"])
def test_any_number_of_timesteps_ends_with_the_same_noise(name: str) -> None:
    """Published betas at another T would end elsewhere: after 100 of `linear` ᾱ is 0.36 instead of 0.00004.
    (At T = 2 the cap on β keeps a little more signal.)"""
    wanted = float(schedule(name).snr[-1])
    for count in (3, 10, 100, 250, 777, 1001, 4000):
        assert float(schedule(name, count).snr[-1]) == pytest.approx(wanted, rel=1e-9), count
    naive = torch.linspace(1e-4, 0.02, 100, dtype=torch.float64)
    assert AlphasCumprod((1 - naive).cumprod(0)).snr[-1] > 1000 * schedule("linear").snr[-1]


def test_fewer_timesteps_are_places_on_the_same_curve() -> None:
    for name in ("linear", "scaled-linear"):
        assert torch.allclose(schedule(name, 250).alphas_cumprod, schedule(name).alphas_cumprod[3::4], rtol=1e-9)
    assert torch.allclose(schedule("sigmoid", 250).alphas_cumprod[:-1], schedule("sigmoid").alphas_cumprod[3:-1:4])


def test_half_precision_tables_would_not_do() -> None:
    """Negative control of float64: through fp32 the first noise level is off by more than 1e-6."""
    exact = schedule("linear").noise_scale[0]
    through_float32 = (1 - schedule("linear").alphas_cumprod.float()).sqrt()[0].double()
    assert abs(through_float32 / exact - 1) > 1e-6
