"""One tensor watched for all: what moves it, what does not, and who else does."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from safelight.probes.sample_parameter import MonitoredParameter


def make() -> tuple[nn.Parameter, MonitoredParameter]:
    parameter = nn.Parameter(torch.arange(6.0).reshape(2, 3))
    return parameter, MonitoredParameter(parameter)


def look(parameter: nn.Parameter, sentinel: MonitoredParameter, gradient: float, change: float) -> dict[str, float]:
    parameter.grad = torch.full_like(parameter, gradient)
    sentinel.before_update()
    with torch.no_grad():
        parameter += change
    return {name: float(value) for name, value in sentinel.after_update().items()}


def test_an_update_and_none() -> None:
    parameter, sentinel = make()
    assert look(parameter, sentinel, 1.0, 0.5)["sentinel/moved"] == 1
    assert look(parameter, sentinel, 1.0, 0.0)["sentinel/moved"] == 0


def test_the_gradient_of_the_step_before() -> None:
    parameter, sentinel = make()
    assert "sentinel/echo" not in look(parameter, sentinel, 1.0, 0.1)
    assert look(parameter, sentinel, 2.0, 0.1)["sentinel/echo"] == pytest.approx(1)
    assert look(parameter, sentinel, -1.0, 0.1)["sentinel/echo"] == pytest.approx(-1)
    sentinel.just_updated(closely=False)  # a step that was not looked at
    assert "sentinel/echo" not in look(parameter, sentinel, 1.0, 0.1), "its neighbour is not known"


def test_an_average_that_stands_still_between_looks() -> None:
    _, sentinel = make()
    shadow = torch.zeros(2, 3)
    assert sentinel.measure_ema(shadow) == {}
    assert float(sentinel.measure_ema(shadow)["average/same"]) == 1
    shadow += 1e-6
    assert float(sentinel.measure_ema(shadow)["average/same"]) == 0


def test_weights_that_are_changed_between_two_updates() -> None:
    parameter, sentinel = make()
    assert not sentinel.was_changed(), "nothing is known yet"
    sentinel.just_updated(closely=True)
    assert not sentinel.was_changed()
    sentinel.just_updated(closely=True)
    kept = parameter.detach().clone()
    with torch.no_grad():
        parameter.zero_()
        parameter.copy_(kept)
    assert not sentinel.was_changed(), "swapped for samples and put back"
    sentinel.just_updated(closely=True)
    parameter.data[0, 0] += 1e-3
    assert sentinel.was_changed()
    sentinel.just_updated(closely=True)
    sentinel.forget()
    with torch.no_grad():
        parameter += 1
    assert not sentinel.was_changed(), "the run went back to an earlier step"


def test_at_steps_that_are_not_looked_at_a_count_of_changes_raises_suspicion() -> None:
    parameter, sentinel = make()
    sentinel.just_updated(closely=False)
    assert not sentinel.was_changed()
    found = []
    for _ in range(3):
        sentinel.just_updated(closely=False)
        with torch.no_grad():
            parameter += 1
        found.append(sentinel.was_changed())
    assert found == [False, True, True], "the first raises suspicion, from then on it is seen"


def test_nothing_to_watch() -> None:
    sentinel = MonitoredParameter(None)
    sentinel.before_update()
    sentinel.just_updated(closely=True)
    assert sentinel.after_update() == {}
    assert not sentinel.was_changed()
