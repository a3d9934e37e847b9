"""Parameters are grouped by the blocks of their network."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from monitored import monitored_network

from safelight.monitors.modules import MAX_PARTS, find_parts, trainable_parameters, unwrapped, weight_histograms


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
    assert len(names) <= MAX_PARTS
    assert names[0] == "layer0 …"


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
