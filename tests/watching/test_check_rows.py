"""The rows of a check by plain numbers: outputs, timesteps, gradients, samples, memory, and what was not looked at."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from safelight import checks
from safelight.diagnosis.run_history import name_of
from safelight.model.estimate import ModelEstimate
from safelight.model.memory import Memory
from safelight.probes.forward_pass import ProcessSpec
from safelight.watching.check_rows import Outputs, observe_outputs, rows_of, trace_memory
from safelight.watching.trial_steps import Trial

ALPHAS = torch.linspace(0.99, 0.01, 100).double()


class Times(nn.Module):
    """Returns the timestep at every place, and remembers in which mode it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.modes = nn.Parameter(torch.ones(())), list[bool]()

    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        self.modes.append(self.training)
        return self.scale * t.float()[:, None].expand_as(x)


def trial() -> Trial:
    call = lambda model, x, t, labels: model(x, t, labels)  # noqa: E731
    return Trial(torch.zeros(4, 3), None, ProcessSpec(ALPHAS, "epsilon"), call, torch.Generator().manual_seed(0))


def test_outputs_by_timestep_are_those_of_the_model() -> None:
    model = Times()
    found = observe_outputs(model, trial(), None)
    assert [(t, mean) for t, mean, *_ in found.by_timestep] == [(0, 0), (10, 10), (50, 50), (90, 90), (99, 99)]
    assert found.shape == found.wanted == (4, 3)
    assert not any(model.modes)
    assert model.training


class Exact(nn.Module):
    """The noise, where the images are 0; only half of it at timesteps of 50 and more."""

    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        spread = (1 - ALPHAS[t]).sqrt().to(x)[:, None]
        return x / spread * torch.where(t < 50, 1.0, 0.5)[:, None]


def test_the_error_at_a_timestep_is_that_of_images_with_its_noise() -> None:
    found = observe_outputs(Exact(), trial(), None)
    errors = [error for *_, error in found.by_timestep]
    assert errors[:2] == pytest.approx([0.0, 0.0], abs=1e-6)
    assert errors[2:] == pytest.approx([0.25] * 3)
    shown = [row.value for row in rows_of({}, found, "no room", {}) if row.name.startswith("output at t = 90")]
    assert str(shown[0]).endswith("error 0.25 of predicting 0")


def test_looking_at_outputs_does_not_move_the_draws_of_the_trial() -> None:
    one, other = trial(), trial()
    observe_outputs(Times(), one, None)
    other.noised()
    assert torch.equal(one.noised().noise, other.noised().noise)


def test_samples_are_those_of_the_sampler_and_a_failure_is_said() -> None:
    found = observe_outputs(Times(), trial(), lambda model, noise: torch.tensor([[1.0, -3.0, torch.nan]] * 4))
    assert (found.samples["lowest"], found.samples["highest"]) == (-3.0, 1.0)
    assert math.isclose(found.samples["NaN or infinite"], 1 / 3)
    assert "ZeroDivisionError" in observe_outputs(Times(), trial(), lambda model, noise: 1 / 0).failed


def rows(**readings: float) -> dict[tuple[str, str], str]:
    series = {name: ([0], [value]) for name, value in readings.items()}
    found = rows_of(series, Outputs(), "no room", {"labels": "pass labels", "gradients": "pass a model"})
    return {(row.part, row.name): row.state for row in found}


def test_only_what_was_measured_has_a_row() -> None:
    found = rows(**{name_of(checks.SCHEDULE_FIRST): 1.0, "gradient/part/body": 0.0})
    assert found["schedule", "first alphas_cumprod"] == "ok"
    assert found["gradients", "norm of body"] == "ok"
    assert found["labels", "-"] == "not looked at"
    assert ("gradients", "-") not in found
    assert found["memory", "-"] == "not looked at"
    assert (
        rows(**{name_of(checks.NETWORK_REACHED): 0.0})["gradients", "share of parameters with a gradient"] == "finding"
    )


def test_memory_that_does_not_fit_is_a_finding() -> None:
    estimate = ModelEstimate(1, 2, Memory(1, 1, 1, 0, 1, 300), available=200)
    [row] = [each for each in rows_of({}, Outputs(), estimate, {}) if each.name.startswith("peak")]
    assert row.state == "finding"
    assert isinstance(trace_memory(Times(), torch.zeros(2, 3), False, None, None), ModelEstimate)
    assert "cannot be traced" in str(trace_memory(nn.Linear(9, 9), torch.zeros(2, 3), False, None, None))
