"""What a process tells of an update."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from safelight.watching.ranks.rank_monitor import (
    FIRST_LOOKS,
    RankMonitor,
    is_look,
    layout_entry,
    read_layout,
    trained_by,
)


def test_updates_are_chosen_by_their_number() -> None:
    assert [call for call in range(130) if is_look(call)] == [*range(FIRST_LOOKS), 64, 128]


def test_what_is_trained_comes_once_and_in_the_order_of_the_optimizer() -> None:
    one, two, frozen = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))
    frozen.requires_grad_(False)
    optimizer = torch.optim.SGD([{"params": [two, frozen]}, {"params": [one]}], lr=0.1)
    assert list(map(id, trained_by(optimizer))) == [id(two), id(one)]


def test_any_bit_changes_what_is_told() -> None:
    layer = nn.Linear(3, 2)
    look = RankMonitor(list(layer.parameters()), 2)
    layer(torch.ones(1, 3)).sum().backward()
    before = look.take(0)
    assert layer.weight.grad is not None
    layer.weight.grad[1, 2] += 1e-6
    after = look.take(1)
    assert before["weights"] == after["weights"]
    assert before["gradients"] != after["gradients"]
    with torch.no_grad():
        layer.bias[0] = layer.bias[0].nextafter(torch.tensor(9.0))
    assert look.take(2)["weights"] != after["weights"]
    assert look.take(FIRST_LOOKS) == {}
    look.close()


def test_the_state_of_the_generator_counts_where_it_moves() -> None:
    layer = nn.Linear(3, 2)
    look = RankMonitor(list(layer.parameters()), 2)
    look.take(0)
    still = look.take(1)["random"]
    torch.rand(1)
    moved = look.take(2)["random"]
    look.close()
    assert [still[1], moved[1]] == [0, 1]
    assert still[0] != moved[0]


def test_batches_of_a_loader_are_seen_and_what_is_passed_beside_them() -> None:
    layer, before = nn.Linear(3, 2), _BaseDataLoaderIter.__next__
    look = RankMonitor(list(layer.parameters()), 2)
    rows = [(torch.full((3,), float(number)), number) for number in range(4)]
    look.begin(0)
    for number, _ in enumerate(DataLoader(rows, batch_size=2)):  # type: ignore[arg-type]
        told = look.take(number)
        assert len(told["loaded/rows"]) == 2
        assert told["loaded/moments"][0] == 0.5 + 2 * number
    assert "loaded/rows" not in look.take(2), "it is of the update before"
    x0 = torch.randn(5, 3)
    passed = look.describe(x0, x0)
    assert len(passed["passed/rows"]) == 5
    assert len(passed["noise"]) == 1
    assert look.describe(None, None) == look.describe(torch.ones(3, dtype=torch.long), None) == {}
    look.close()
    assert _BaseDataLoaderIter.__next__ is before


def test_a_layout_is_read_as_it_was_written() -> None:
    assert read_layout(layout_entry(["whole", "(3, 2) S(0) 1"])) == ["whole", "(3, 2) S(0) 1"]
