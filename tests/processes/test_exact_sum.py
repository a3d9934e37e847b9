"""The tree of exact mode: whoever adds, and however the parts are shared, the bytes are the same."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from safelight.processes.exact_sum import Node, aligned, fold, merge


def leaves(parts: int) -> list[Tensor]:
    torch.manual_seed(parts)
    return [torch.randn(257) * 10 ** torch.empty(257).uniform_(-3, 3) for _ in range(parts)]


def tree_sum(parts: int, processes: int) -> Tensor:
    """As that many processes would add them."""
    values, share = leaves(parts), parts // processes
    whole: list[Node] = []
    for rank in range(processes):
        mine: list[Node] = []
        for place in range(rank * share, (rank + 1) * share):
            mine.append(Node(place, 1, values[place].clone()))
            merge(mine)
        assert [(node.start, node.size) for node in mine] == aligned(rank * share, (rank + 1) * share)
        for node in mine:
            whole.append(node)
            merge(whole)
    fold(whole)
    return whole[0].sum


CASES = [(s, p) for s in (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 60) for p in range(1, s + 1) if s % p == 0]


@pytest.mark.parametrize(("parts", "processes"), CASES)
def test_any_number_of_processes_gives_the_same_bytes(parts: int, processes: int) -> None:
    found = tree_sum(parts, processes)
    assert torch.equal(found, tree_sum(parts, 1))
    torch.testing.assert_close(found, torch.stack(leaves(parts)).double().sum(0).float(), rtol=1e-3, atol=1e-3)


def test_adding_one_after_the_other_would_be_noticed() -> None:
    """The negative control: sums of sums depend on who had which parts."""
    values = leaves(12)
    by_process = [sum(sum(values[i : i + 12 // p]) for i in range(0, 12, 12 // p)) for p in (1, 3, 4)]
    assert not torch.equal(torch.as_tensor(by_process[0]), torch.as_tensor(by_process[1]))
    assert not torch.equal(torch.as_tensor(by_process[1]), torch.as_tensor(by_process[2]))
