"""The best linear denoiser of a data set: the Wiener filter of its mean and covariance."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from safelight.diffusion.draws import draw_noise
from safelight.diffusion.process import per_sample
from safelight.keys import derive_seed

LARGEST_FULL = 1024  # numbers in an image whose whole covariance is used: 32 px in grey, or a small latent
MIN_IMAGES_PER_NUMBER = 4  # images for each of those numbers: fewer, and the filter would know its images by heart


@dataclass(frozen=True, slots=True)
class LinearDenoiser:
    """In a basis in which the images are taken as independent: the eigenvectors of their covariance, or for large
    images and small sets the frequencies of the cosine transform, at each of which only the channels are correlated."""

    mean: Tensor  # [channels, height, width]
    vectors: Tensor  # [blocks, size, size], columns
    variances: Tensor  # [blocks, size]
    count: int  # images it was fitted to

    @property
    def is_full(self) -> bool:
        return len(self.vectors) == 1

    def isotropic(self) -> LinearDenoiser:
        """What is left of it where only the mean image and one variance are known."""
        return replace(self, variances=torch.full_like(self.variances, float(self.variances.mean())))

    def denoise(self, x_t: Tensor, a: Tensor, s: Tensor) -> Tensor:
        """The expected x0 of each x_t = a · x0 + s · noise, if images were Gaussian; `a` and `s` one for each."""
        a, s = a.double(), s.double()
        centred = self._to_blocks(x_t.double() - per_sample(a, x_t) * self.mean)
        rotated = torch.einsum("nbi,bij->nbj", centred, self.vectors)
        gain = _gain(self.variances, a[:, None, None], s[:, None, None])
        return self.mean + self._to_images(torch.einsum("nbj,bij->nbi", rotated * gain, self.vectors))

    def loss(self, a: Tensor, s: Tensor) -> Tensor:
        """The expected mean square of the error of x0 for Gaussian images, of each pair."""
        a, s = a.double()[:, None, None], s.double()[:, None, None]
        return (self.variances * (1 - a * _gain(self.variances, a, s))).mean((1, 2))

    def draw(self, count: int, seed: int) -> Tensor:
        """Images of the Gaussian with this mean and covariance, clipped to [-1, 1]; float32, on the host."""
        noise = draw_noise(derive_seed(seed, "gaussian"), 0, 0, count, tuple(self.variances.shape)).double()
        mean, vectors, spread = self.mean.cpu(), self.vectors.cpu(), self.variances.sqrt().cpu()
        drawn = self._to_images(torch.einsum("nbj,bij->nbi", noise * spread, vectors))
        return (mean + drawn).clamp(-1, 1).float()

    def _to_blocks(self, images: Tensor) -> Tensor:
        if self.is_full:
            return images.flatten(1)[:, None]
        return cosines(images).flatten(2).transpose(1, 2)

    def _to_images(self, blocks: Tensor) -> Tensor:
        if self.is_full:
            return blocks.view(-1, *self.mean.shape)
        return cosines(blocks.transpose(1, 2).reshape(-1, *self.mean.shape), inverse=True)


def _gain(variances: Tensor, a: Tensor, s: Tensor) -> Tensor:
    return a * variances / (a.square() * variances + s.square()).clamp(min=1e-300)


def cosines(images: Tensor, *, inverse: bool = False) -> Tensor:
    """The orthonormal cosine transform of each channel."""
    rows, columns = (_transform(side, images) for side in images.shape[-2:])
    if inverse:
        return rows.T @ images @ columns
    return rows @ images @ columns.T


def _transform(side: int, like: Tensor) -> Tensor:
    """[frequency, place]."""
    place = torch.arange(side, dtype=like.dtype, device=like.device)
    found = torch.cos(math.pi / side * (place + 0.5) * place[:, None]) * math.sqrt(2 / side)
    found[0] /= math.sqrt(2)
    return found


def fit_linear(batches: Iterable[Tensor]) -> LinearDenoiser:
    """`batches` of images [n, channels, height, width] as a network is shown them; read twice, so no iterator."""
    count, total = 0, torch.zeros(())
    for images in batches:
        count, total = count + len(images), total + images.double().sum(0)
    mean = total / max(1, count)
    full = mean.numel() <= LARGEST_FULL and count >= MIN_IMAGES_PER_NUMBER * mean.numel()
    size = mean.numel() if full else len(mean)
    products = torch.zeros(mean.numel() // size, size, size, dtype=torch.float64, device=mean.device)
    for images in batches:
        # float32 is exact enough for products of pixels, and twice as fast; sums are float64.
        centred = (images.double() - mean).float()
        if full:
            products[0] += centred.flatten(1).T @ centred.flatten(1)
        else:
            found = cosines(centred).flatten(2)
            products += torch.einsum("ncf,ndf->fcd", found, found)
    variances, vectors = torch.linalg.eigh(products / max(1, count))
    return LinearDenoiser(mean, vectors, variances.clamp(min=0), count)
