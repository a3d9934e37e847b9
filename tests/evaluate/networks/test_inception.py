"""The Inception of FID: the layers of the known file, its pooling, and the check that leaves no trace."""

from __future__ import annotations

import pytest
import torch
from networks import photographs, shuffled
from torch import nn

from safelight.evaluate.networks import inception


def test_inception_is_the_one_of_the_known_file() -> None:
    with torch.device("meta"):
        network = inception.Inception()
    names = network.state_dict().keys()
    assert sum(p.numel() for p in network.parameters()) == 21_785_568
    assert sum(isinstance(part, nn.Conv2d) for part in network.modules()) == 94
    assert {
        "Conv2d_1a_3x3.conv.weight",
        "Conv2d_4a_3x3.bn.running_var",
        "Mixed_5b.branch1x1.conv.weight",
        "Mixed_5d.branch3x3dbl_3.bn.bias",
        "Mixed_6a.branch3x3.conv.weight",
        "Mixed_6e.branch7x7dbl_5.bn.weight",
        "Mixed_7a.branch7x7x3_4.conv.weight",
        "Mixed_7c.branch3x3dbl_3b.bn.running_mean",
        "Mixed_7c.branch_pool.conv.weight",
    } <= names
    weights = sum(p.numel() for name, p in network.named_parameters() if name.endswith("conv.weight"))
    assert weights + 2048 * 1008 + 1008 == inception.SKIPPED_WEIGHTS, (
        "the random numbers that making such a network uses up"
    )


def test_the_taps_of_inception() -> None:
    network = shuffled(inception.Inception())
    levels = torch.from_numpy(photographs(1, 299)).float()
    kept = levels.clone()
    for tap in (64, inception.DIMENSION):
        features = network(levels, tap)
        assert features.shape == (1, tap)
        assert features.isfinite().all()
        assert torch.equal(features, network(levels, tap))
    assert torch.equal(levels, kept), "the input is left as it is"


def test_average_does_not_count_the_border() -> None:
    assert torch.equal(inception.average_pool(torch.ones(1, 1, 3, 3)), torch.ones(1, 1, 3, 3))


def test_the_last_block_takes_the_maximum() -> None:
    blocks = [shuffled(inception.Grid8(2048, last=last)) for last in (False, True)]
    blocks[1].load_state_dict(blocks[0].state_dict())
    x = torch.rand(1, 2048, 8, 8, generator=torch.Generator().manual_seed(0))
    usual, last = (block(x) for block in blocks)
    assert torch.equal(usual[:, :-192], last[:, :-192])
    assert not torch.equal(usual[:, -192:], last[:, -192:])


def test_the_self_check_leaves_the_random_numbers_alone() -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, levels: torch.Tensor, tap: int) -> torch.Tensor:
            return levels.mean((2, 3)) * self.scale

    before = torch.get_rng_state()
    distance = inception.self_check(Flat())
    assert torch.equal(torch.get_rng_state(), before)
    assert distance == pytest.approx(3 * (177 - 99.5) ** 2, rel=1e-3)  # three channels, means 99.5 and 177
