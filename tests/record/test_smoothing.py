"""Exponential means, against a plain loop."""

from __future__ import annotations

import numpy as np
import pytest

from safelight.record.smoothing import exponential_mean, moving_mean
from safelight.record.zoom import from_numbers


def test_the_first_mean_is_the_first_number() -> None:
    """Debiased: a biased average would begin near 0."""
    assert exponential_mean(np.arange(3), np.array([5.0, 5.0, 5.0]), 100.0).tolist() == pytest.approx([5, 5, 5])


def test_a_step_is_followed_by_half_within_a_half_life() -> None:
    numbers = np.concatenate([np.zeros(5000), np.ones(200)])
    mean = exponential_mean(np.arange(5200), numbers, 100.0)
    assert mean[4999] == 0
    assert mean[5099] == pytest.approx(0.5, abs=0.01)
    assert mean[5199] == pytest.approx(0.75, abs=0.01)


def test_the_half_life_is_in_steps_and_not_in_readings() -> None:
    steps, noise = np.arange(20_000), np.random.default_rng(0).normal(size=20_000)
    numbers = steps / 1000 + noise / 10
    dense = exponential_mean(steps, numbers, 500.0)
    sparse = exponential_mean(steps[::10], numbers[::10], 500.0)
    assert np.abs(dense[::10] - sparse)[100:].max() < 0.1
    readings = exponential_mean(np.arange(2000), numbers[::10], 500.0)  # negative control
    assert np.abs(dense[::10] - readings)[100:].max() > 1


@pytest.mark.parametrize("width", [4, 64, 256])
def test_spans_of_a_zoom_give_the_same_curve(width: int) -> None:
    steps = np.arange(16_384)
    numbers = np.sin(steps / 3000).astype(np.float32)
    numbers[500:600] = np.nan
    spans = from_numbers(steps, numbers, width)
    exact = exponential_mean(steps, numbers, 1000.0)[spans.last]
    found = exponential_mean(spans.last, spans.mean, 1000.0, spans.count - spans.nonfinite)
    assert np.abs(exact - found).max() < 0.05


@pytest.mark.parametrize(
    ("numbers", "last"),
    [
        ([1.0, 1.0, 1.0], 1.0),
        ([1.0, np.nan, 1.0], 1.0),
        ([np.inf, 1.0, -np.inf], 1.0),
        ([np.nan, np.nan], np.nan),
        ([], None),
    ],
)
def test_what_is_not_finite_is_left_out(numbers: list, last: float | None) -> None:
    found = exponential_mean(np.arange(len(numbers)), np.array(numbers), 3.0)
    assert len(found) == len(numbers)
    if last is not None:
        assert found[-1] == pytest.approx(last, nan_ok=True)


def test_the_fast_mean_is_that_of_a_plain_loop() -> None:
    draw = np.random.default_rng(0)
    for count, half_life in [(1, 3.0), (500, 0.2), (3000, 7.0), (3000, 900.0)]:
        steps = np.cumsum(draw.integers(1, 30, count))
        values = np.where(draw.random(count) < 0.1, np.nan, draw.normal(size=count) * 100)
        weights = draw.integers(0, 5, count).astype(float)
        exact = mean_by_loop(steps, values, half_life, weights)
        np.testing.assert_allclose(exponential_mean(steps, values, half_life, weights), exact, atol=1e-9)


def mean_by_loop(steps: np.ndarray, numbers: np.ndarray, half_life: float, weights: np.ndarray) -> list[float]:
    means, weight, mean, before = [], 0.0, 0.0, steps[0]
    for step, number, new in zip(steps, numbers, weights, strict=True):
        weight *= 0.5 ** ((step - before) / half_life)
        before = step
        if np.isfinite(number) and new > 0:
            weight += new
            mean += new / weight * (number - mean)
        means.append(mean if weight > 0 else np.nan)
    return means


def test_a_moving_mean_counts_steps_and_leaves_out_what_is_not_finite() -> None:
    steps, numbers = np.array([0, 1, 2, 6, 7]), np.array([1.0, 3.0, np.nan, 5.0, 9.0])
    assert moving_mean(steps, numbers, 2).tolist() == pytest.approx([1.0, 2.0, 3.0, 5.0, 7.0])
    assert np.isnan(moving_mean(np.array([0]), np.array([np.nan]), 3)).all()
