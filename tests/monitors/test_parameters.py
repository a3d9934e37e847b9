"""Parameters are grouped by the blocks of their network."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from monitored import monitored_network
from torch import Tensor

from safelight.monitors.parameters import (
    MAX_BLOCKS,
    SMALL,
    ReadNorms,
    find_parts,
    norms_of,
    trainable_parameters,
    unwrapped,
    weight_histograms,
)


def names_of(parameters: list[str]) -> tuple[str, ...]:
    return find_parts([(name, torch.zeros(1)) for name in parameters]).names


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        (["conv_in.weight", "conv_in.bias", "down_blocks.0.a.weight", "down_blocks.1.a.weight"],
         ("conv_in", "down_blocks.0", "down_blocks.1")),
        (["module.unet.a.weight", "module.unet.b.weight"], ("a", "b")),
        (["weight"], ("weight",)),
        (["0.weight", "0.bias", "2.weight"], ("0", "2")),
        ([], ()),
    ],
)  # fmt: skip
def test_parts_are_the_blocks_of_a_network(parameters: list[str], names: tuple[str, ...]) -> None:
    assert names_of(parameters) == names


def test_a_class_made_of_a_wrapper_is_a_wrapper() -> None:
    class WithAttributes(torch.nn.DataParallel):
        """As people write it, so that attributes of the network inside are seen."""

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.module, name)

    network = torch.nn.Linear(2, 2)
    assert unwrapped(WithAttributes(network)) is network


def test_many_parts_are_put_together() -> None:
    names = names_of([f"layer{number}.weight" for number in range(200)])
    assert len(names) <= MAX_BLOCKS
    assert names[0] == "layer0 …"


SHAPES = [(3,), (), (2, 3), (0,), (5, 5), (40, 40), (7,), (1,), (4,), (31,), (1024,), (1025,), (8,), (9,)]


def some(change: Callable[[list[Tensor]], object] = lambda _: None) -> list[Tensor]:
    random = torch.Generator().manual_seed(0)
    made = [torch.randn(shape, generator=random) for shape in SHAPES]
    change(made)
    return made


@pytest.mark.parametrize(
    "change",
    [
        lambda _: None,
        lambda made: made[0].fill_(math.nan),
        lambda made: made[5].fill_(math.inf),
        lambda made: made[6].fill_(1e30),
        lambda made: made.__setitem__(4, made[4].t()),
        lambda made: made.__setitem__(2, made[2].bfloat16()),
        lambda made: made.__setitem__(2, made[2].double()),
        lambda made: made.__setitem__(2, made[2].to_sparse()),
        lambda made: made.__setitem__(slice(None), [each.bfloat16() for each in made]),
    ],
    ids=["plain", "NaN", "infinite", "overflow", "transposed", "one half", "one double", "sparse", "half"],
)
def test_norms_that_are_read_are_the_norms(change: Callable[[list[Tensor]], object]) -> None:
    tensors = some(change)
    kept = [each.clone() for each in tensors]
    found = ReadNorms([each.numel() for each in tensors]).of(tensors)
    torch.testing.assert_close(found, norms_of(tensors), rtol=1e-6, atol=0, equal_nan=True)
    assert all(torch.equal(each.to_dense(), own.to_dense()) or each.isnan().any()
               for each, own in zip(tensors, kept, strict=True) if not each.is_sparse)  # fmt: skip


def test_small_tensors_share_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    true = torch._foreach_norm
    monkeypatch.setattr(torch, "_foreach_norm", lambda given, *how: counted.append(len(given)) or true(given, *how))
    tensors = some()
    ReadNorms([each.numel() for each in tensors]).of(tensors)
    assert counted == [len([shape for shape in SHAPES if not 0 < math.prod(shape) <= SMALL])]


def test_histograms_count_every_finite_weight_of_a_part() -> None:
    model = monitored_network()
    named = trainable_parameters(model)
    parts, weights = find_parts(named), [parameter for _, parameter in named]
    with torch.no_grad():
        weights[0][0, 0] = math.nan
        weights[3].zero_()
    found = weight_histograms(parts, weights)
    assert tuple(found) == parts.names
    for index, name in enumerate(parts.names):
        flat = np.concatenate(
            [w.detach().numpy().ravel() for i, w in zip(parts.index, weights, strict=True) if i == index]
        )
        flat = flat[np.isfinite(flat)]
        counts, edges = found[name]
        assert counts.sum() == len(flat)
        assert (edges[0], edges[-1]) == (pytest.approx(flat.min()), pytest.approx(flat.max()))
        assert np.abs(counts - np.histogram(flat, edges)[0]).sum() <= 2  # a weight on an edge may go either way
