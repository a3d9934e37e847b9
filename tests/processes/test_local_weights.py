"""What a process holds of its weights."""

from __future__ import annotations

import torch
from moments import same
from torch import Tensor, nn

from safelight.processes.local_weights import LocalWeights


def test_what_is_held_is_what_a_state_dict_has() -> None:
    model = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(2, 3)), nn.BatchNorm1d(3))
    model.register_buffer("passing", torch.zeros(1), persistent=False)
    held = LocalWeights(model)
    model[1].running_mean = torch.full((3,), 5.0)  # put in its place, not written into it
    model(torch.randn(4, 2))
    expected: dict[str, Tensor] = model.state_dict()
    assert [*held.tensors()] == [*expected]
    assert all(same(value, expected[name]) for name, value in held.tensors().items())
