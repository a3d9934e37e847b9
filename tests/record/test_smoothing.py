"""Averages and curves."""

from __future__ import annotations

import numpy as np
import pytest

from safelight.record.smoothing import exponential, windowed
from safelight.record.sparkline import draw
from safelight.record.zoom import from_numbers


def test_the_first_mean_is_the_first_number() -> None:
    """Debiased: a biased average would begin near 0."""
    assert exponential(np.arange(3), np.array([5.0, 5.0, 5.0]), 100.0).mean.tolist() == pytest.approx([5, 5, 5])


def test_a_step_is_followed_by_half_within_a_half_life() -> None:
    numbers = np.concatenate([np.zeros(5000), np.ones(200)])
    mean = exponential(np.arange(5200), numbers, 100.0).mean
    assert mean[4999] == 0
    assert mean[5099] == pytest.approx(0.5, abs=0.01)
    assert mean[5199] == pytest.approx(0.75, abs=0.01)


def test_the_half_life_is_in_steps_and_not_in_readings() -> None:
    steps, noise = np.arange(20_000), np.random.default_rng(0).normal(size=20_000)
    numbers = steps / 1000 + noise / 10
    dense = exponential(steps, numbers, 500.0).mean
    sparse = exponential(steps[::10], numbers[::10], 500.0).mean
    assert np.abs(dense[::10] - sparse)[100:].max() < 0.1
    readings = exponential(np.arange(2000), numbers[::10], 500.0).mean  # negative control
    assert np.abs(dense[::10] - readings)[100:].max() > 1


@pytest.mark.parametrize("width", [4, 64, 256])
def test_spans_of_a_zoom_give_the_same_curve(width: int) -> None:
    steps = np.arange(16_384)
    numbers = np.sin(steps / 3000).astype(np.float32)
    numbers[500:600] = np.nan
    spans = from_numbers(steps, numbers, width)
    exact = exponential(steps, numbers, 1000.0).mean[spans.last]
    found = exponential(spans.last, spans.mean, 1000.0, spans.count - spans.nonfinite).mean
    assert np.abs(exact - found).max() < 0.05


@pytest.mark.parametrize("smooth", [lambda n: exponential(np.arange(len(n)), n, 3.0), lambda n: windowed(n, 3)])
@pytest.mark.parametrize(
    ("numbers", "marks", "last"),
    [
        ([1.0, 1.0, 1.0], 0, 1.0),
        ([1.0, np.nan, 1.0], 1, 1.0),
        ([np.inf, 1.0, -np.inf], 2, 1.0),
        ([np.nan, np.nan], 2, np.nan),
        ([], 0, None),
    ],
)
def test_what_is_not_finite_is_left_out_and_marked(smooth, numbers: list, marks: int, last: float | None) -> None:
    found = smooth(np.array(numbers))
    assert len(found.mean) == len(found.deviation) == len(numbers)
    assert found.marks.sum() == marks
    if last is not None:
        assert found.mean[-1] == pytest.approx(last, nan_ok=True)


def test_deviations() -> None:
    numbers = 1e6 + np.random.default_rng(0).normal(size=5000)
    assert exponential(np.arange(5000), numbers, 500.0).deviation[-1] == pytest.approx(1, abs=0.1)
    found = windowed(numbers, 100)
    assert found.deviation[-1] == pytest.approx(numbers[-100:].std())
    assert found.mean[:2] == pytest.approx([numbers[0], numbers[:2].mean()])


@pytest.mark.parametrize(
    ("numbers", "columns", "text"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, "▁▂▃▄▅▆▇█"),
        ([0, np.nan, 7, 7], 4, "▁×██"),
        ([1, 1, 1], 9, "▁▁▁"),
        ([np.nan, np.inf], 2, "××"),
        ([0, 0, 0, np.nan, 7, 7], 3, "▁×█"),
        ([], 5, ""),
    ],
)
def test_a_curve_in_one_line(numbers: list[float], columns: int, text: str) -> None:
    assert draw(from_numbers(np.arange(len(numbers)), np.array(numbers, np.float32), 1), columns) == text


def test_a_gap_in_the_curve() -> None:
    assert draw(from_numbers(np.array([0, 9]), np.array([0, 1], np.float32), 1), 5) == "▁   █"
