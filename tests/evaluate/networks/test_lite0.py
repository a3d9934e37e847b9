"""EfficientNet-Lite0: its size, its padding, and the sides that it takes."""

from __future__ import annotations

import pytest
import torch
from networks import shuffled

from safelight.evaluate.networks import lite0


def test_lite0_has_the_published_size() -> None:
    with torch.device("meta"):
        network = lite0.Lite0()
    # 4,652,008 with the classifier of 1000 classes
    assert sum(p.numel() for p in network.parameters()) == 4_652_008 - 1280 * 1000 - 1000
    assert len(network.blocks) == 16


@pytest.mark.parametrize("side", [32, 64, 96])
def test_lite0_at_any_multiple_of_32(side: int) -> None:
    network = shuffled(lite0.Lite0())
    assert network(torch.rand(2, 3, side, side) * 255).shape == (2, 1280)
    with pytest.raises(AssertionError, match="multiples of 32"):
        network(torch.rand(2, 3, side + 8, side + 8))


def test_padding_is_that_of_tensorflow() -> None:
    """With stride 2 the window begins at the first pixel, and not one before it."""
    convolution = lite0.Conv2dSame(1, 1, 3, stride=2)
    convolution.weight.data = torch.tensor([[1.0, 0, 0], [0, 0, 0], [0, 0, 0]]).view(1, 1, 3, 3)
    image = torch.arange(16.0).view(1, 1, 4, 4)
    assert torch.equal(convolution(image), image[..., ::2, ::2])


@pytest.mark.parametrize(
    ("size", "side"), [(8, 32), (16, 32), (17, 64), (32, 64), (33, 128), (64, 128), (65, 224), (512, 224), (None, 224)]
)
def test_the_side_for_images_of_a_size(size: int | None, side: int) -> None:
    assert lite0.side_for(size) == side
