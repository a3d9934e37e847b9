"""Parameters are grouped by the blocks of their network."""

from __future__ import annotations

import pytest
import torch

from safelight.monitors.modules import MOST, find_parts


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


def test_many_parts_are_put_together() -> None:
    names = names_of([f"layer{number}.weight" for number in range(200)])
    assert len(names) <= MOST
    assert names[0] == "layer0 …"
