"""Trial steps: the batch is noised as the schedule says, and readings are those of a watched loop."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from safelight import checks
from safelight.config.tree import Prediction
from safelight.diagnosis.run_history import name_of
from safelight.errors import UsageError
from safelight.probes.forward_pass import ProcessSpec
from safelight.watching.trial_steps import STEPS, Trial, take_trial_steps

ALPHAS = torch.linspace(0.99, 0.01, 100).double()


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 6)

    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        return self.body(x) * (1 + t.float()[:, None] / 100)


def trial(prediction: Prediction = "epsilon", alphas: Tensor | None = ALPHAS) -> Trial:
    images = torch.randn(8, 6, generator=torch.Generator().manual_seed(1)).clamp(-1, 1)
    call = lambda model, x, t, labels: model(x, t, labels)  # noqa: E731
    return Trial(images, None, ProcessSpec(alphas, prediction), call, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v_prediction"])
def test_noising_and_target_follow_the_schedule(prediction: Prediction) -> None:
    given = trial(prediction)
    noised = given.noised()
    a, s = ALPHAS[noised.t].sqrt().float()[:, None], (1 - ALPHAS[noised.t]).sqrt().float()[:, None]
    x0, noise = given.images, noised.noise
    assert torch.allclose(noised.x_t, a * x0 + s * noise)
    expected = {"epsilon": noise, "sample": x0, "v_prediction": a * noise - s * x0}
    assert torch.allclose(noised.target, expected[prediction])
    assert len(noised.t.unique()) == 8  # spread over the schedule


def test_the_probes_agree_that_the_steps_are_right() -> None:
    torch.manual_seed(0)
    network = Network()
    series, events, broken = take_trial_steps(network, torch.optim.Adam(network.parameters()), trial(), None)
    latest = {name: numbers[-1] for name, (_, numbers) in series.items()}
    assert len(series["gradient/norm"][1]) == STEPS
    assert latest[name_of(checks.FORWARD_WRONG)] == 0
    assert latest[name_of(checks.TARGET["epsilon"])] < 1e-6
    assert latest[name_of(checks.REPLAY_COSINE)] == pytest.approx(1, abs=1e-4)
    assert events == []
    assert broken == {}


def test_without_a_schedule_or_an_optimizer_the_rest_is_measured() -> None:
    series, _, _ = take_trial_steps(Network(), None, trial(alphas=None), None)
    assert "gradient/part/body" in series or "gradient/norm" in series
    assert name_of(checks.SCHEDULE_FIRST) not in series
    assert name_of(checks.OPTIMIZER_RATE) not in series


def test_a_model_that_cannot_be_called_is_named() -> None:
    given = trial()
    with pytest.raises(UsageError, match=r"Linear cannot be called with x \[8, 6\]"):
        given.answer(nn.Linear(6, 6), given.images, torch.zeros(8), None)
