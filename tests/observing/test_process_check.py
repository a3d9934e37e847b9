"""What processes are compared by: any other bit is noticed. Among real processes: tests/processes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from safelight.observing.process_check import checksum, checksum_of, shared_by_processes


@pytest.mark.parametrize(
    ("ids", "shared"),
    [
        ([[1, 2, 3], [4, 5, 6]], 0.0),
        ([[1, 1, 3], [4, 5, 6]], 0.0),  # twice in one process: not shared
        ([[1, 2, 3], [3, 5, 6]], 1 / 3),
        ([[1, 2, 3], [1, 2, 3]], 1.0),
    ],
)
def test_images_that_two_processes_have(ids: list[list[int]], shared: float) -> None:
    assert shared_by_processes(np.array(ids)) == pytest.approx(shared)


def test_one_other_bit_or_two_swapped_weights_give_another_checksum() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    before = checksum(model)
    assert checksum(model) == before
    with torch.no_grad():
        model.weight[0, 0] = torch.nextafter(model.weight[0, 0], torch.tensor(torch.inf))
    assert checksum(model) != before
    assert checksum_of(torch.tensor([1.0, 2.0])) != checksum_of(torch.tensor([2.0, 1.0]))
    assert checksum_of(torch.ones(2), torch.zeros(2)) != checksum_of(torch.zeros(2), torch.ones(2))
