"""Which times and which noise a level stands for."""

from __future__ import annotations

import numpy as np
import pytest

from safelight.config.resolve import resolve
from safelight.diffusion.schedule import make_process
from safelight.monitors.loss import LEVELS, noise_levels
from safelight.observing.noise_levels import describe_levels, levels_of_settings


def test_the_levels_are_those_that_the_loss_is_counted_by() -> None:
    log_snr = np.linspace(8, -8, 1000)
    found = describe_levels(np.arange(1000.0), log_snr)
    level = noise_levels(log_snr, LEVELS)
    for place in range(LEVELS):
        low, high = np.flatnonzero(level == place)[[0, -1]]
        assert abs(found["t"][place][0] - low) <= 1  # type: ignore[index]
        assert abs(found["t"][place][1] - high) <= 1  # type: ignore[index]


@pytest.mark.parametrize(("process", "time"), [("vp", "t"), ("flow", "t"), ("edm", "σ")])
def test_more_noise_comes_with_the_number(process: str, time: str) -> None:
    predictions = {"vp": ("v_prediction", "uniform"), "flow": ("flow", "logit-normal"), "edm": ("edm", "log-normal")}
    prediction, density = predictions[process]
    names = {"process": process, "prediction": prediction, "density": density}
    settings = resolve(settings={f"diffusion.{name}": value for name, value in names.items()}).diffusion
    found = levels_of_settings(settings, make_process(settings))
    assert found["time"] == time
    ends = found["log_snr"]
    assert isinstance(ends, list)
    assert len(ends) == LEVELS
    assert [end[1] for end in ends] == sorted((end[1] for end in ends), reverse=True)


def test_fewer_times_than_levels_are_not_named() -> None:
    assert describe_levels(np.arange(4.0), np.arange(4.0))["t"] == []
