"""The exact denoiser against brute force."""

from __future__ import annotations

import pytest
import torch

from safelight.yardstick.exact import denoise_exactly


def brute_force(x_t: torch.Tensor, a: float, s: float, images: torch.Tensor) -> torch.Tensor:
    found = []
    for each in x_t.double():
        apart = (each - a * images.double()).square().flatten(1).sum(1)
        weights = torch.softmax(-apart / (2 * s * s), 0)
        found.append((weights.view(-1, 1, 1, 1) * images.double()).sum(0))
    return torch.stack(found)


@pytest.mark.parametrize(("a", "s"), [(1.0, 0.02), (0.8, 0.6), (0.3, 0.95), (0.0, 1.0), (1.0, 20.0)])
@pytest.mark.parametrize("pieces", [1, 5])
def test_it_is_the_posterior_mean(a: float, s: float, pieces: int) -> None:
    draw = torch.Generator().manual_seed(0)
    images = torch.rand(64, 1, 8, 8, generator=draw) * 2 - 1
    x_t = a * images[:16] + s * torch.randn(16, 1, 8, 8, generator=draw)
    found = denoise_exactly(
        x_t, *(torch.full((16,), each, dtype=torch.float64) for each in (a, s)), images.split(64 // pieces)
    )
    assert torch.allclose(found, brute_force(x_t, a, s, images), rtol=1e-6, atol=1e-9)


def test_no_denoiser_of_the_training_set_is_better() -> None:
    """On average over its own images; the nearest image alone, and the mean, are worse."""
    draw = torch.Generator().manual_seed(0)
    images = torch.rand(64, 1, 4, 4, generator=draw) * 2 - 1
    chosen = torch.randint(64, (4000,), generator=draw)
    x0 = images[chosen]
    x_t = 0.5 * x0 + 0.8 * torch.randn(x0.shape, generator=draw)
    found = denoise_exactly(x_t, torch.full((4000,), 0.5), torch.full((4000,), 0.8), [images])
    nearest = images[torch.cdist(x_t.flatten(1), 0.5 * images.flatten(1)).argmin(1)]
    floor = float((found - x0).square().mean())
    assert floor < 0.9 * float((nearest - x0).square().mean())
    assert floor < 0.9 * float((images.mean(0) - x0).square().mean())
