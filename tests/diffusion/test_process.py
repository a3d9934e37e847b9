"""Processes as functions of time: their ends, their noise level, and what a network is shown."""

from __future__ import annotations

import math

import pytest
import torch

from safelight.config.tree import Diffusion
from safelight.diffusion.process import (
    Process,
    cosine_flow,
    edm,
    linear_flow,
    resolution_shift,
    shifted,
    token_shift,
    vp,
)
from safelight.diffusion.schedule import make_process, make_schedule
from tests.diffusion.test_targets import PROCESSES, times


@pytest.mark.parametrize("name", PROCESSES)
def test_noise_level_rises_with_time(name: str) -> None:
    process = PROCESSES[name]
    t = times(process)
    levels = process.log_snr(t)
    assert (levels.diff() < 0).all()
    a, s = process.at(t)
    assert a.dtype == s.dtype == torch.float64
    torch.testing.assert_close(levels, 2 * (a.log() - s.log()), atol=1e-12, rtol=0)


def test_a_table_is_read_as_it_is() -> None:
    schedule, process = make_schedule(Diffusion()), make_process(Diffusion())
    t = torch.tensor([0, 7, 999])
    a, s = process.at(t)
    assert torch.equal(a, schedule.signal_scale[t])
    assert torch.equal(s, schedule.noise_scale[t])
    assert process.timesteps == 1000
    x = torch.ones(3, 1, 2, 2)
    shown, told = process.input(x, t)
    assert shown is x
    assert told is t


@pytest.mark.parametrize("signal", [0.0, 1.0])
def test_noise_level_is_finite_at_the_ends(signal: float) -> None:
    process = vp(torch.tensor([signal], dtype=torch.float64))
    assert process.log_snr(torch.tensor([0])).isfinite().all()


@pytest.mark.parametrize("process", [linear_flow(), linear_flow(3.0), cosine_flow()])
def test_a_flow_goes_from_image_to_noise(process: Process) -> None:
    a, s = process.at(torch.tensor([0.0, 1.0]))
    assert a.tolist() == pytest.approx([1, 0], abs=1e-15)
    assert s.tolist() == pytest.approx([0, 1], abs=1e-15)
    assert process.timesteps is None


def test_edm_shows_inputs_of_variance_one_and_a_quarter_of_log_sigma() -> None:
    generator = torch.Generator().manual_seed(0)
    sigma = torch.tensor([0.01, 0.5, 40.0])
    x0 = torch.randn(3, 1, 64, 64, generator=generator) * 0.5
    x_t = x0 + sigma.view(-1, 1, 1, 1) * torch.randn(3, 1, 64, 64, generator=generator)
    shown, told = edm().input(x_t, sigma)
    assert shown.dtype == told.dtype == torch.float32
    assert shown.flatten(1).std(1).tolist() == pytest.approx([1, 1, 1], rel=0.05)
    assert told.tolist() == pytest.approx([math.log(each) / 4 for each in (0.01, 0.5, 40.0)])


def test_a_shift_moves_all_noise_levels_by_the_same() -> None:
    t = torch.linspace(0.01, 0.99, 50, dtype=torch.float64)
    moved = linear_flow(3.0).log_snr(t) - linear_flow().log_snr(t)
    assert moved.tolist() == pytest.approx([-2 * math.log(3)] * 50)
    assert torch.equal(shifted(t, 1.0), t)
    _, told = linear_flow(3.0).input(t.view(-1, 1), t)
    assert told.tolist() == pytest.approx((1000 * shifted(t, 3.0)).tolist(), rel=1e-6), "the network is told the noise"


def test_shifts_by_resolution() -> None:
    assert resolution_shift(128**2, 64**2) == 2, "twice the side"
    assert token_shift(256) == pytest.approx(math.exp(0.5))
    assert token_shift(4096) == pytest.approx(math.exp(1.15))


@pytest.mark.parametrize("name", PROCESSES)
def test_what_a_network_is_shown_can_be_read_back(name: str) -> None:
    process = PROCESSES[name]
    t = times(process)[:: max(1, len(times(process)) // 7)]
    x = torch.randn(len(t), 1, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x_t, found = process.seen(*process.input(x, t))
    torch.testing.assert_close(found, t, rtol=1e-5, atol=0)
    torch.testing.assert_close(x_t, x, rtol=1e-5, atol=0)
