"""The denoisers of a data set, measured on samples of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from safelight.data.batches import Batches
from safelight.data.images import Images
from safelight.yardstick.denoisers import AT_ONCE, DatasetDenoisers

SIDE = 4


def images(count: int, seed: int = 0) -> Images:
    """Blobs: a random brightness in a random quarter, over a grey that all share."""
    draw = np.random.default_rng(seed)
    pixels = np.full((count, SIDE, SIDE, 1), 90, np.uint8)
    for each, (row, column) in zip(pixels, draw.integers(0, 2, (count, 2)), strict=True):
        each[2 * row : 2 * row + 2, 2 * column : 2 * column + 2] = draw.integers(120, 250)
    return Images(pixels, None, (), "")


def denoisers(found: Images) -> DatasetDenoisers:
    return DatasetDenoisers(Batches(found, seed=1, batch_size=len(found)), len(found))


def x0_error(truth: torch.Tensor):
    def loss(x0: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        return (x0 - truth).square().flatten(1).mean(1)

    return loss


@pytest.mark.parametrize("level", [(0.95, 0.3), (0.7, 0.7), (0.2, 0.98)])
def test_each_denoiser_is_better_than_the_one_before(level: tuple[float, float]) -> None:
    known = denoisers(images(AT_ONCE + 100))
    x0 = torch.cat(list(known))[:256].double()
    a, s = (torch.full((len(x0),), each) for each in level)
    noise = torch.randn(x0.shape, generator=torch.Generator().manual_seed(0))
    stick = known.measure(level[0] * x0 + level[1] * noise, a, s, x0_error(x0), trained_on=True)
    assert stick.exact is not None
    assert stick.exact.mean() < stick.linear.mean() < stick.isotropic.mean()


def test_all_images_are_read_each_once() -> None:
    found = images(AT_ONCE + 100)
    read = torch.cat(list(denoisers(found))).flatten(1)
    assert len(read) == AT_ONCE + 100
    assert sorted(read.sum(1).tolist()) == pytest.approx(
        sorted((torch.from_numpy(found.pixels).float() / 127.5 - 1).flatten(1).sum(1).tolist()), abs=1e-4
    )


def test_held_out_images_have_no_floor() -> None:
    known, x0 = denoisers(images(200)), torch.rand(8, 1, SIDE, SIDE)
    a = s = torch.full((8,), 0.7)
    assert known.measure(x0, a, s, x0_error(x0), trained_on=False).exact is None


def test_the_noise_that_a_denoiser_implies_belongs_to_its_image() -> None:
    """Whatever the network predicts, x0 and noise together are the input."""
    known = denoisers(images(200))
    x_t, a, s = torch.randn(8, 1, SIDE, SIDE), torch.full((8,), 0.6), torch.full((8,), 0.8)

    def loss(x0: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        assert torch.allclose(0.6 * x0 + 0.8 * noise, x_t.double(), atol=1e-6)
        return x0.flatten(1).mean(1)

    known.measure(x_t, a, s, loss, trained_on=True)
