"""What a time says of the noise: every clock there and back, found by its samples, or not known."""

from __future__ import annotations

import numpy as np
import pytest

from safelight.config.tree import Diffusion
from safelight.diffusion import time_mappings
from safelight.diffusion.schedule import make_schedule
from safelight.diffusion.time_mappings import TimeMapping

DRAW = np.random.default_rng(3)
SHARE = DRAW.uniform(0.002, 0.998, 400)
TABLE = make_schedule(Diffusion(schedule="linear")).alphas_cumprod
CLOCKS = [
    *time_mappings.USUAL_CLOCKS,
    time_mappings.linear(999.0),
    time_mappings.before_shift(3.0),
    time_mappings.before_shift(1.7, 1000.0),
]


@pytest.mark.parametrize("clock", CLOCKS, ids=lambda clock: clock.words)
def test_there_and_back(clock: TimeMapping) -> None:
    np.testing.assert_allclose(clock.of(clock.at(SHARE)), SHARE, rtol=1e-9, atol=1e-12)
    times = clock.at(np.sort(SHARE))
    assert (np.diff(times) > 0).all() if clock.rises else (np.diff(times) < 0).all()


@pytest.mark.parametrize("clock", CLOCKS, ids=lambda clock: clock.words)
def test_a_clock_is_found_by_its_samples(clock: TimeMapping) -> None:
    found = time_mappings.find(clock.at(SHARE), SHARE)
    assert found is not None
    np.testing.assert_allclose(found.of(clock.at(SHARE)), SHARE, atol=1e-3)
    if clock in time_mappings.USUAL_CLOCKS:
        assert found.words == clock.words


def test_places_of_a_table() -> None:
    clock, places = time_mappings.entries(TABLE), np.arange(0, 1000, 7).astype(float)
    np.testing.assert_array_equal(clock.at(clock.of(places)), places)
    fraction = time_mappings.entries(TABLE, 1000.0)
    np.testing.assert_allclose(fraction.of(places / 1000), clock.of(places))


@pytest.mark.parametrize(
    ("name", "t"),
    [
        ("unrelated", DRAW.uniform(0, 1, 400)),
        ("constant", np.full(400, 0.5)),
        ("of half of them", np.where(np.arange(400) % 2, SHARE, 1 - SHARE)),
        ("not finite", np.where(np.arange(400) == 3, np.nan, SHARE)),
    ],
)
def test_what_is_no_clock_is_not_known(name: str, t: np.ndarray) -> None:
    assert time_mappings.find(t, SHARE) is None
    assert time_mappings.measured(t, SHARE) is None


def test_a_clock_without_a_name_is_read_off_its_samples() -> None:
    for t in (SHARE**3 + SHARE, -(SHARE**3)):
        assert time_mappings.find(t, SHARE) is None
        clock = time_mappings.measured(t, SHARE)
        assert clock is not None
        np.testing.assert_allclose(clock.of(t), SHARE, atol=2e-3)
        assert clock.rises == bool(t[SHARE.argmax()] > t[SHARE.argmin()])
    assert time_mappings.measured((SHARE**3)[:100], SHARE[:100]) is None, "too few"


@pytest.mark.parametrize(
    ("times", "known", "words"),
    [
        (SHARE, time_mappings.OF_FLOW, "t = s"),
        (1000 * SHARE, time_mappings.OF_FLOW, "t = 1000·s"),
        (np.exp(DRAW.normal(-1.2, 1.2, 64)), time_mappings.OF_SIGMA, "t = sigma"),
        (DRAW.normal(-1.2, 1.2, 64) / 4, time_mappings.OF_SIGMA, "t = log(sigma) / 4"),
        (DRAW.normal(-1.2, 1.2, 64), time_mappings.OF_SIGMA, "t = log(sigma)"),
    ],
)
def test_times_alone_tell_clocks_of_a_process_apart(
    times: np.ndarray, known: tuple[TimeMapping, ...], words: str
) -> None:
    found = time_mappings.by_range(times, known)
    assert found is not None
    assert found.words == words
    assert time_mappings.by_range(times[:4], known) is None, "too few"
