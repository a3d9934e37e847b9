"""What counts as the jitter of a series."""

from __future__ import annotations

import numpy as np
import pytest

from bench.variance import jitter


def test_a_trend_does_not_count_and_noise_does() -> None:
    rng = np.random.default_rng(0)
    trend = np.linspace(2, 1.9, 4000)
    assert jitter(trend) < 1e-9
    assert np.sqrt(jitter(trend * (1 + 0.05 * rng.standard_normal(4000)))) == pytest.approx(0.05, rel=0.05)
