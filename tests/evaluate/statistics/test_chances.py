"""Quantiles and tail probabilities against those of scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from safelight.evaluate.statistics.chances import fisher_greater, holm, normal_cdf, student_cdf, student_quantile


@pytest.mark.parametrize("degrees", [7, 15, 31, np.inf])
def test_the_law_of_student(degrees: float) -> None:
    law = stats.norm if np.isinf(degrees) else stats.t(degrees)
    assert student_quantile(0.95, degrees) == pytest.approx(law.ppf(0.975), abs=0.002)
    for t in (-4, -1.7, 0, 2):
        assert student_cdf(t, degrees) == pytest.approx(law.cdf(t), abs=0.002)


@pytest.mark.parametrize("z", [-30.0, -4.0, -0.1, 0.0, 2.0, 9.0])
def test_the_normal_law(z: float) -> None:
    assert normal_cdf(z) == pytest.approx(stats.norm.cdf(z), rel=1e-12)


@pytest.mark.parametrize("table", [(5, 100, 0, 100), (3, 64, 0, 1000), (0, 10, 3, 10), (10, 10, 0, 5), (7, 50, 6, 40)])
def test_the_exact_chance(table: tuple[int, int, int, int]) -> None:
    from scipy.stats import fisher_exact

    hits, count, other, others = table
    wanted = fisher_exact([[hits, count - hits], [other, others - other]], alternative="greater")[1]
    assert fisher_greater(*table) == pytest.approx(wanted)


def test_holm_stops_at_the_first_that_fails() -> None:
    assert holm(np.array([0.001, 0.04, 0.011, 0.9]), 0.05).tolist() == [True, False, True, False]
    assert holm(np.array([0.013, 0.013, 0.013]), 0.05).tolist() == [True] * 3
