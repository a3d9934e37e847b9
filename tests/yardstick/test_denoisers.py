"""The denoisers of a data set, measured on samples of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from safelight.yardstick.denoisers import AT_ONCE, ClosedFormDenoisers

SIDE = 4


def images(count: int, seed: int = 0) -> torch.Tensor:
    """Blobs: a random brightness in a random quarter, over a grey that all share."""
    draw = np.random.default_rng(seed)
    pixels = np.full((count, 1, SIDE, SIDE), -0.3, np.float32)
    for each, (row, column) in zip(pixels, draw.integers(0, 2, (count, 2)), strict=True):
        each[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2] = draw.uniform(0, 1)
    return torch.from_numpy(pixels)


def denoisers(found: torch.Tensor) -> ClosedFormDenoisers:
    return ClosedFormDenoisers(found.split(AT_ONCE))


def x0_error(truth: torch.Tensor):
    def loss(x0: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        return (x0 - truth).square().flatten(1).mean(1)

    return loss


@pytest.mark.parametrize("level", [(0.95, 0.3), (0.7, 0.7), (0.2, 0.98)])
def test_each_denoiser_is_better_than_the_one_before(level: tuple[float, float]) -> None:
    found = images(AT_ONCE + 100)
    known, x0 = denoisers(found), found[:256].double()
    a, s = (torch.full((len(x0),), each) for each in level)
    noise = torch.randn(x0.shape, generator=torch.Generator().manual_seed(0))
    stick = known.measure(level[0] * x0 + level[1] * noise, a, s, x0_error(x0))
    assert stick.exact.mean() < stick.linear.mean() < stick.isotropic.mean()


def test_the_noise_that_a_denoiser_implies_belongs_to_its_image() -> None:
    """Whatever the network predicts, x0 and noise together are the input."""
    known = denoisers(images(200))
    x_t, a, s = torch.randn(8, 1, SIDE, SIDE), torch.full((8,), 0.6), torch.full((8,), 0.8)

    def loss(x0: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        assert torch.allclose(0.6 * x0 + 0.8 * noise, x_t.double(), atol=1e-6)
        return x0.flatten(1).mean(1)

    known.measure(x_t, a, s, loss)
