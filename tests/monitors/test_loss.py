"""The loss by noise level equals what a plain loop over the samples would give."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest

from safelight.config.tree import Diffusion
from safelight.diffusion.densities import make_time_quantile
from safelight.diffusion.draws import draw_times
from safelight.diffusion.schedule import make_process
from safelight.monitors.loss import (
    BINS,
    LEVELS,
    STEPS_PER_CELL,
    LossMonitor,
    RecentLosses,
    make_noise_binning,
    noise_binning_of_table,
    noise_levels,
)

LOG_SNR = np.linspace(8, -8, 1000)


def draws(steps: int, batch: int, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Losses that depend on the timestep as those of diffusion do, and a little on chance."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(steps):
        t = rng.integers(0, 1000, batch)
        loss = np.exp(-4 * t / 1000) * rng.gamma(20, 1 / 20, batch)
        found.append((loss.astype(np.float32), t))
    return found


def test_levels_are_slices_of_equal_probability_from_little_noise_to_much() -> None:
    log_snr = np.linspace(8, -8, 100)
    assert noise_levels(log_snr, 4)[[0, 24, 25, 99]].tolist() == [0, 0, 1, 3]
    assert noise_levels(log_snr[::-1], 4)[[0, 99]].tolist() == [3, 0]
    assert np.bincount(noise_levels(log_snr, 4)).tolist() == [25] * 4


def test_levels_of_continuous_time_are_slices_of_equal_probability() -> None:
    settings = Diffusion(process="edm", density="log-normal")
    density, process = make_time_quantile(settings), make_process(settings)
    levels = make_noise_binning(process.log_snr, density, process.timesteps)
    t = draw_times("uniform", density, seed=0, step=0, batch_size=64_000).numpy()
    counts = np.bincount(levels(t), minlength=BINS)
    assert len(counts) == BINS
    assert counts.min() > 800, "about 1,000 each"
    assert (np.diff(levels(np.sort(t))) >= 0).all()
    assert levels(np.array([np.nan, -1.0, 80.0])).tolist() == [-1, -1, BINS - 1]


@pytest.mark.parametrize("timesteps", [100, 1000, 17])
def test_bins_are_parts_of_levels(timesteps: int) -> None:
    """The loss by level sums bins, and skill by level does not: they are the same levels."""
    log_snr = np.random.default_rng(0).normal(size=timesteps)
    assert (noise_levels(log_snr, BINS) // (BINS // LEVELS) == noise_levels(log_snr, LEVELS)).all()


def test_whitening_takes_the_draw_of_timesteps_out() -> None:
    monitor, raw, white = LossMonitor(noise_binning_of_table(LOG_SNR)), [], []
    for step, (loss, t) in enumerate(draws(600, 32)):
        reading = monitor.measure(step, loss, t)
        raw.append(reading["loss/mean"])
        white.append(reading["loss/whitened"])
        assert raw[-1] == pytest.approx(float(loss.mean()))
    late = slice(300, None)
    noise = [np.std(series[late]) / np.mean(series[late]) for series in (raw, white)]
    assert np.mean(white[late]) == pytest.approx(1, abs=0.02)
    assert noise[1] < noise[0] / 3


def test_whitening_shows_news() -> None:
    monitor, white = LossMonitor(noise_binning_of_table(LOG_SNR)), []
    for step, (loss, t) in enumerate(draws(600, 32)):
        white.append(monitor.measure(step, loss * (1.3 if step >= 500 else 1), t)["loss/whitened"])
    assert np.mean(white[500:510]) > 1.2
    assert abs(np.mean(white[490:500]) - 1) < 0.05


def test_a_loss_that_is_not_finite_shows_and_is_not_remembered() -> None:
    monitor = LossMonitor(noise_binning_of_table(LOG_SNR))
    healthy = draws(80, 32)
    for step, (loss, t) in enumerate(healthy[:40]):
        monitor.measure(step, loss, t)
    sick = healthy[40][0].copy()
    sick[3] = math.nan
    reading = monitor.measure(40, sick, healthy[40][1])
    assert math.isnan(reading["loss/mean"])
    assert math.isnan(reading["loss/whitened"])
    after = monitor.measure(41, *healthy[41])
    assert abs(after["loss/whitened"] - 1) < 0.5
    assert all(value.isfinite().all() for value in monitor.state().values())


def test_levels_are_means_over_their_part_of_the_schedule() -> None:
    monitor = LossMonitor(noise_binning_of_table(LOG_SNR[::-1].copy()))  # noise may also fall with the timestep
    seen = draws(STEPS_PER_CELL, 8)
    reading: dict[str, float] = {}
    for step, (loss, t) in enumerate(seen):
        reading = monitor.measure(step, loss, t)
        assert len(reading) == 2 + LEVELS * (step == STEPS_PER_CELL - 1)
    loss, t = (np.concatenate([pair[place] for pair in seen]) for place in (0, 1))
    level = (999 - t) * LEVELS // 1000
    for number in range(LEVELS):
        assert reading[f"loss/level/{number:02d}"] == pytest.approx(loss[level == number].mean(), rel=1e-5)


def test_a_level_that_was_not_drawn_has_no_reading() -> None:
    monitor = LossMonitor(noise_binning_of_table(LOG_SNR))
    reading: dict[str, float] = {}
    for step in range(STEPS_PER_CELL):
        reading = monitor.measure(step, np.ones(2, np.float32), np.array([0, 999]))
    assert reading.keys() - {"loss/mean", "loss/whitened"} == {"loss/level/00", f"loss/level/{LEVELS - 1}"}


def test_what_is_remembered_can_be_put_back() -> None:
    seen = draws(100, 16)
    whole, first = LossMonitor(noise_binning_of_table(LOG_SNR)), LossMonitor(noise_binning_of_table(LOG_SNR))
    expected = [whole.measure(step, *pair) for step, pair in enumerate(seen)]
    for step in range(50):
        first.measure(step, *seen[step])
    second = LossMonitor(noise_binning_of_table(LOG_SNR))
    second.restore(copy.deepcopy(first.state()))
    assert [second.measure(step, *seen[step]) for step in range(50, 100)] == expected[50:]
    assert first.usual.shape == (BINS,)


def test_recent_losses_are_averaged_and_a_step_counts_once() -> None:
    recent, losses = RecentLosses(), np.random.default_rng(0).uniform(0.1, 1.0, 200)
    for step, loss in enumerate(losses):
        recent.measure(step, 100.0)  # measured again below
        found = recent.measure(step, float(loss))
        window = losses[max(0, step - 63) : step + 1]
        assert found == {
            "loss/mean": loss,
            "loss/smooth": pytest.approx(window.mean()),
            "loss/deviation": pytest.approx(window.std()),
        }


def test_a_loss_that_is_not_finite_is_left_out_of_the_recent_ones() -> None:
    recent = RecentLosses()
    assert set(recent.measure(0, float("nan"))) == {"loss/mean"}
    recent.measure(1, 1.0)
    assert recent.measure(2, float("inf"))["loss/smooth"] == 1.0
