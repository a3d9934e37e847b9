"""The gradient of a process's own samples, before anybody adds to it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from safelight.monitors.shards import WHOLE
from safelight.watching.ranks.local_gradient import LocalGradient


def seen(*, wanted: bool = True, pieces: str = WHOLE, clears: bool = False) -> dict[str, np.ndarray]:
    """Two micro-batches, and what others add."""
    layer = nn.Linear(3, 2, bias=False)
    local = LocalGradient([layer.weight], [pieces])
    local.begin(is_wanted=wanted)
    for number in (1.0, 2.0):
        if clears:
            layer.zero_grad(set_to_none=False)
        layer(torch.full((1, 3), number)).sum().backward()
    assert layer.weight.grad is not None
    layer.weight.grad += 10
    found = local.take()
    local.close()
    layer(torch.ones(1, 3)).sum().backward()
    return found


def test_micro_batches_are_added_and_others_are_not() -> None:
    own, given = seen()["parts"]
    assert own == pytest.approx(np.full(6, 3.0))
    assert given == pytest.approx(np.full(6, 13.0))
    assert seen(clears=True)["parts"][0] == pytest.approx(np.full(6, 2.0))


def test_nothing_is_kept_where_it_is_not_wanted_or_not_whole() -> None:
    assert seen(wanted=False) == {}
    assert seen(pieces="half") == {}
