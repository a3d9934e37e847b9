"""One weight of the image's error, told for every target."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

from safelight.config.tree import Diffusion, Prediction, Schedule
from safelight.diffusion.process import edm, per_sample
from safelight.diffusion.schedule import make_schedule
from safelight.diffusion.targets import edm_target, target_of
from safelight.diffusion.weighting import weights_of
from tests.diffusion.test_objective import batch

PREDICTIONS: tuple[Prediction, ...] = ("v_prediction", "epsilon", "sample")


@pytest.mark.parametrize("gamma", [1.0, 5.0, 20.0])
@pytest.mark.parametrize("schedule", get_args(Schedule))
def test_min_snr_weighs_the_image_error_alike_in_every_prediction(schedule: str, gamma: float) -> None:
    """One wrong image, told as image, noise or velocity: its squared error is snr times as large in ε and snr + 1
    times in v, so only the right weight of each gives min(snr, γ) · |x0 error|² for all three."""
    table = make_schedule(Diffusion(schedule=schedule))  # type: ignore[arg-type]
    x0, noise = batch(len(table))
    a, s = per_sample(table.signal_scale, x0), per_sample(table.noise_scale, x0)
    x_t = a * x0 + s * noise
    wrong = x0 + 0.1 * batch(len(table), seed=1)[0]
    wanted = table.snr.clamp(max=gamma) * (wrong - x0).square().flatten(1).mean(1)
    for prediction in PREDICTIONS:
        answer = target_of(prediction, wrong, (x_t - a * wrong) / s, a, s)
        target = target_of(prediction, x0, noise, a, s)
        error = (answer - target).square().flatten(1).mean(1)
        weighted = weights_of("min-snr", prediction, table.signal_scale, table.noise_scale, gamma=gamma) * error
        assert torch.allclose(weighted, wanted, rtol=1e-6), prediction


def test_a_misplaced_one_in_the_velocity_weight_would_be_seen() -> None:
    """Negative control: min(snr, γ) / snr, right for ε, is the mistake that five issues of diffusers are about."""
    table = make_schedule(Diffusion())
    right, wrong = (
        weights_of("min-snr", kind, table.signal_scale, table.noise_scale) for kind in ("v_prediction", "epsilon")
    )
    assert not torch.allclose(right, wrong, rtol=0.5)


@pytest.mark.parametrize("prediction", PREDICTIONS)
def test_weights_are_finite_where_there_is_no_signal(prediction: Prediction) -> None:
    """0 / 0 at zero terminal SNR turned runs of others into NaN (Min-SNR#2)."""
    table = make_schedule(Diffusion(zero_terminal_snr=True))
    weights = weights_of("min-snr", prediction, table.signal_scale, table.noise_scale)
    assert table.snr[-1] == 0
    assert weights.isfinite().all()
    assert (weights >= 0).all()
    assert float(weights[-1]) == pytest.approx({"epsilon": 1.0, "sample": 0.0, "v_prediction": 0.0}[prediction])


def test_edm_weighs_its_own_target_alike_at_every_noise_level() -> None:
    """λ(σ)·c_out(σ)² = 1 (Karras et al. 2022), and λ itself for an error of the image."""
    sigma = torch.logspace(-2.5, 1.9, 50, dtype=torch.float64)
    a, s = edm(0.7).at(sigma)
    own = weights_of("edm", edm_target(0.7), a, s, sigma_data=0.7)
    torch.testing.assert_close(own, torch.ones_like(own), rtol=1e-12, atol=0)
    image = weights_of("edm", "sample", a, s, sigma_data=0.7)
    torch.testing.assert_close(image, (sigma**2 + 0.7**2) / (sigma * 0.7) ** 2, rtol=1e-12, atol=0)
    assert not torch.allclose(weights_of("edm", edm_target(0.7), a, s, sigma_data=0.5), own, rtol=0.1), "control"


def test_no_weighting_is_one_everywhere() -> None:
    table = make_schedule(Diffusion())
    assert (weights_of("none", "epsilon", table.signal_scale, table.noise_scale) == 1).all()
