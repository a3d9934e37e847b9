"""Numbers are short and always finite; facts of a foreign record are cut."""

from __future__ import annotations

import numpy as np
import pytest

from safelight.pages.data.numbers import as_float, plain, trimmed


def test_numbers_are_short_and_never_not_finite() -> None:
    draw = np.random.default_rng(0)
    wild = draw.normal(size=500) * 10.0 ** draw.integers(-300, 300, 500)
    for value, shown in zip(wild.tolist(), plain(wild), strict=True):
        assert shown == pytest.approx(value, rel=1e-5)
        assert shown is not None
        assert shown == pytest.approx(float(f"{value:.6g}"), rel=1e-12) or abs(shown - value) <= 5e-6 * abs(value)
    everyday = draw.normal(size=500) * 10.0 ** draw.integers(-6, 9, 500)
    assert max(len(repr(shown)) for shown in plain(everyday)) <= 13  # no stray digits
    assert plain(np.array([np.nan, np.inf, -np.inf, 0.0, -0.1, 1e38, 1e-38])) == [
        None,
        None,
        None,
        0,
        -0.1,
        1e38,
        1e-38,
    ]
    assert [as_float(x) for x in (True, "1", None, float("nan"), 10**400, 3)] == [None] * 5 + [3.0]


def test_facts_of_a_stranger_are_cut() -> None:
    deep: list = []
    for _ in range(100):
        deep = [deep]
    found = trimmed({"deep": deep, "long": "x" * 10**6, "many": list(range(10**5)), "big": 10**30, "nan": float("nan")})
    assert len(found["long"]) == 4000
    assert len(found["many"]) == 1000
    assert found["nan"] is None
    assert found["big"] == 1e30
    assert str(found["deep"]).count("[") < 10
