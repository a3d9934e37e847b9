"""The linear denoiser against analytic values and brute force."""

from __future__ import annotations

import pytest
import torch

from safelight.yardstick import linear
from safelight.yardstick.linear import cosines, fit_linear

PAIRS = torch.tensor([[1.0, 0.01], [0.9, 0.44], [0.5, 0.87], [0.1, 0.995], [1.0, 5.0], [0.0, 1.0]])
A, S = PAIRS.T


def gaussian(count: int, covariance: torch.Tensor, shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    draw = torch.randn(count, len(covariance), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (draw @ torch.linalg.cholesky(covariance).T + 0.3).view(count, *shape).float()


def covariance(size: int, seed: int = 1) -> torch.Tensor:
    root = torch.randn(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return root @ root.T / size + 0.05 * torch.eye(size, dtype=torch.float64)


def test_the_loss_of_gaussian_data_is_the_analytic_one() -> None:
    truth = covariance(16)
    fitted = fit_linear([gaussian(40_000, truth, (1, 4, 4))])
    assert fitted.is_full
    identity = torch.eye(16, dtype=torch.float64)
    for a, s, found in zip(A.double(), S.double(), fitted.loss(A, S), strict=True):
        posterior = truth - a * truth @ torch.linalg.inv(a * a * truth + s * s * identity) @ (a * truth)
        assert float(found) == pytest.approx(float(posterior.trace() / 16), rel=0.01, abs=1e-6)


def test_denoising_has_the_loss_that_was_promised_and_is_the_wiener_filter() -> None:
    truth = covariance(16)
    fitted = fit_linear([gaussian(40_000, truth, (1, 4, 4))])
    fresh = gaussian(20_000, truth, (1, 4, 4), seed=2)
    noise = torch.randn(fresh.shape, generator=torch.Generator().manual_seed(3))
    for a, s in PAIRS:
        each = torch.full((len(fresh),), float(a)), torch.full((len(fresh),), float(s))
        error = fitted.denoise(a * fresh + s * noise, *each) - fresh
        assert float(error.square().mean()) == pytest.approx(float(fitted.loss(a[None], s[None])), rel=0.03, abs=1e-5)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 6, 10)])
def test_cosines_are_orthonormal(shape: tuple[int, ...]) -> None:
    images = torch.randn(5, *shape, dtype=torch.float64)
    assert torch.allclose(cosines(images).square().sum((1, 2, 3)), images.square().sum((1, 2, 3)))
    assert torch.allclose(cosines(cosines(images), inverse=True), images)


def test_few_images_are_not_known_by_heart(monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer images than numbers in one, the whole covariance would denoise its own images and no others."""
    truth = covariance(64)
    few, fresh = gaussian(40, truth, (1, 8, 8)), gaussian(400, truth, (1, 8, 8), seed=5)

    def gap(images: torch.Tensor) -> float:
        fitted = fit_linear([images])
        noise = torch.randn(fresh.shape, generator=torch.Generator().manual_seed(3))

        def loss(of: torch.Tensor) -> float:
            a, s = torch.full((len(of),), 0.7), torch.full((len(of),), 0.7)
            return float((fitted.denoise(0.7 * of + 0.7 * noise[: len(of)], a, s) - of).square().mean())

        return loss(fresh) / loss(images)

    assert not fit_linear([few]).is_full
    careful = gap(few)
    monkeypatch.setattr(linear, "ENOUGH", 0)  # the control: the whole covariance of few images
    assert fit_linear([few]).is_full
    assert gap(few) > 1.5 * careful


def test_channels_are_used_together_where_frequencies_are_not() -> None:
    """Three channels that are copies of each other: the noise in them averages out."""
    grey = torch.rand(300, 1, 16, 16, generator=torch.Generator().manual_seed(0)) * 2 - 1
    copies, apart = fit_linear([grey.repeat(1, 3, 1, 1)]), fit_linear([grey])
    half = torch.tensor([0.7])
    assert not copies.is_full
    assert float(copies.loss(half, half)) < 0.7 * float(apart.loss(half, half))


def test_batches_of_any_size_give_the_same() -> None:
    images = torch.rand(256, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    whole, pieces = fit_linear([images]), fit_linear(list(images.split(37)))
    assert whole.count == pieces.count == 256
    assert torch.allclose(whole.variances, pieces.variances, rtol=1e-5, atol=1e-7)
