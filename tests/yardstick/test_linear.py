"""The linear denoiser against analytic values and brute force."""

from __future__ import annotations

import math

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
    monkeypatch.setattr(linear, "MIN_IMAGES_PER_NUMBER", 0)  # the control: the whole covariance of few images
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


@pytest.mark.parametrize(("shape", "full"), [((1, 4, 4), True), ((3, 24, 24), False)])
def test_images_that_are_drawn_have_the_mean_and_covariance_of_the_data(shape: tuple[int, ...], full: bool) -> None:
    truth = 0.01 * covariance(math.prod(shape)) if full else 0.01 * torch.eye(math.prod(shape), dtype=torch.float64)
    fitted = fit_linear([gaussian(4000, truth, shape)])
    assert fitted.is_full == full
    drawn = fitted.draw(4000, seed=0)
    again = fit_linear([drawn])
    assert drawn.shape == (4000, *shape)
    assert torch.allclose(again.mean, fitted.mean, atol=0.02)
    assert float(again.variances.mean()) == pytest.approx(float(fitted.variances.mean()), rel=0.03)
    assert torch.allclose(again.loss(A, S), fitted.loss(A, S), rtol=0.06)


def test_a_draw_depends_on_its_seed_alone_and_stays_in_range() -> None:
    fitted = fit_linear([3 * gaussian(500, covariance(16), (1, 4, 4))])
    assert torch.equal(fitted.draw(8, seed=1), fitted.draw(8, seed=1))
    assert torch.equal(fitted.draw(8, seed=1)[:4], fitted.draw(4, seed=1)), "more images leave the first as they are"
    assert not torch.equal(fitted.draw(8, seed=1), fitted.draw(8, seed=2))
    assert fitted.draw(64, seed=1).abs().max() == 1
