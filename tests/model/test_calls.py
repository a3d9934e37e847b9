"""A denoiser is called by position, and its prediction is found in what it returns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from safelight.errors import UsageError
from safelight.model.calls import call_model, parameter_names, takes_time

X, T = torch.ones(2, 1), torch.zeros(2, dtype=torch.long)


class Returning(nn.Module):
    def __init__(self, wrap: Any) -> None:
        super().__init__()
        self.wrap = wrap

    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Any:
        return self.wrap(x if labels is None else x + labels[:, None])


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: (x, 1), lambda x: [x], lambda x: SimpleNamespace(sample=x)])
def test_the_prediction_is_found(wrap: Any) -> None:
    assert torch.equal(call_model(Returning(wrap), X, T), X)
    assert torch.equal(call_model(Returning(wrap), X, T, T + 1), X + 1)


@pytest.mark.parametrize("wrap", [lambda x: {"mean": x}, lambda x: None, lambda x: ()])
def test_what_is_no_prediction_is_refused(wrap: Any) -> None:
    with pytest.raises(UsageError, match="Expected a tensor"):
        call_model(Returning(wrap), X, T)


def test_a_model_without_timesteps_is_called_without() -> None:
    linear = nn.Linear(1, 1)
    assert not takes_time(linear)
    assert takes_time(Returning(None))
    assert call_model(linear, X, None).shape == X.shape


def test_names_of_what_is_passed_by_position() -> None:
    class Named(nn.Module):
        def forward(self, x: Tensor, c: Tensor, t: Tensor, *rest: Tensor, scale: float = 1.0) -> Tensor:
            return x

    class Anything(nn.Module):
        def forward(self, *inputs: Tensor, **named: Tensor) -> Tensor:
            return inputs[0]

    assert parameter_names(Named()) == ("x", "c", "t")
    assert parameter_names(Anything()) == ()
