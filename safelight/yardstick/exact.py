"""The exact denoiser of a training set: the posterior mean over its images, which only memorising reaches."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


@torch.no_grad()
def denoise_exactly(x_t: Tensor, a: Tensor, s: Tensor, batches: Iterable[Tensor]) -> Tensor:
    """E[x0 | x_t] for x_t = a · x0 + s · noise with x0 one of the images, each equally likely.

    Of a subset the posterior is narrower than of the whole set: where the images of `x_t` are in it, the error is too
    small and still a floor. The batches are read once; weights are rescaled by the largest so far, as softmax does."""
    flat, a, s = x_t.flatten(1).double(), a.double()[:, None], s.double()[:, None].clamp(min=1e-6)
    highest = torch.full_like(a, -torch.inf)
    mass, mean = torch.zeros_like(a), torch.zeros_like(flat)
    for images in batches:
        flat_images = images.flatten(1).double()
        # |x_t - a x|² without the term that is the same for all images
        apart = a.square() * flat_images.square().sum(1) - 2 * a * (flat @ flat_images.T)
        scores = -apart / (2 * s.square())
        top = torch.maximum(highest, scores.max(1, keepdim=True).values)
        weights, kept = (scores - top).exp(), (highest - top).exp()
        mass, mean, highest = mass * kept + weights.sum(1, keepdim=True), mean * kept + weights @ flat_images, top
    return (mean / mass).view_as(x_t)
