from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import safelight
from safelight.errors import Stopped
from safelight.monitors.finite import NonfiniteSearch, all_finite, check_finite, nonfinite_weights, tensors_in


@pytest.mark.parametrize(
    "tensor", [torch.ones(2, 3), torch.tensor(1e38), torch.zeros(0), torch.tensor([1, 2]), torch.full((9,), 6e4).half()]
)
def test_a_finite_tensor_is_given_back(tensor: torch.Tensor) -> None:
    assert check_finite(tensor, "x") is tensor
    assert not tensor.is_floating_point() or all_finite([tensor])


def test_one_that_is_not_is_described() -> None:
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    x[1, 2], x[2, 0], x[2, 1] = math.nan, math.inf, -math.inf
    words = r"prediction is not finite: 1 NaN and 2 Inf among 12 values of shape \(3, 4\), the first at \(1, 2\). "
    with pytest.raises(Stopped, match=words + r"Finite values: from -1 to 1") as stopped:
        safelight.check_finite(x.requires_grad_(), "prediction")
    assert stopped.value.finding == "non-finite: prediction"
    with pytest.raises(Stopped, match="there are none"):
        check_finite(torch.tensor(math.nan))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_all_finite_is_exact(dtype: torch.dtype) -> None:
    top = torch.full((1000,), torch.finfo(dtype).max, dtype=dtype)  # a norm would overflow
    assert all_finite([top, torch.zeros(0, dtype=dtype)])
    assert all_finite([])
    for bad in (math.nan, math.inf, -math.inf):
        spoilt = top.clone()
        spoilt[500] = bad
        assert not all_finite([top, spoilt])


def test_sparse_gradients_are_looked_at() -> None:
    for value, finite in ((1.0, True), (math.nan, False)):
        sparse = torch.sparse_coo_tensor(torch.tensor([[1]]), torch.tensor([value]), (4,), check_invariants=True)
        assert bool(all_finite([sparse])) == finite


def test_weights_are_named() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    assert nonfinite_weights(model.named_parameters()) is None
    with torch.no_grad():
        model[1].bias[0] = math.inf
    assert nonfinite_weights(model.named_parameters()) == "the weights of 1.bias"


class Spoilt(nn.Module):
    def __init__(self, where: str) -> None:
        super().__init__()
        self.first, self.root, self.last, self.where = nn.Linear(3, 3), nn.Identity(), nn.Linear(3, 1), where

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.root(self.first(x))
        if self.where == "output":
            x = nn.functional.relu(x) * math.inf
        if self.where == "gradient":
            x = torch.sqrt((x * 0).square())  # 0 forward, 0/0 backward
        return self.last(x)


@pytest.mark.parametrize(
    ("where", "found"), [("nowhere", None), ("output", "the output of last"), ("gradient", "the gradient of first")]
)
def test_the_first_place_in_a_pass_is_found(where: str, found: str | None) -> None:
    model = Spoilt(where)
    with NonfiniteSearch(model) as search:
        model(torch.randn(4, 3)).sum().backward()
    assert (search.found or "").startswith(found or "")
    assert bool(search.found) == bool(found)
    assert not any(module._forward_hooks for module in model.modules()), "hooks are gone"


def test_tensors_are_found_in_what_modules_return() -> None:
    x = torch.ones(2)
    assert len(tensors_in({"sample": x, "more": [x, (x, "text", None, torch.tensor(1))]})) == 3
