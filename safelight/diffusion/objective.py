"""What a training step does with images: noising, targets, the loss of each sample and its weight."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from safelight.config.tree import Diffusion, Loss
from safelight.diffusion.process import Process
from safelight.diffusion.targets import target_of
from safelight.diffusion.weighting import weights_of


def per_sample(values: Tensor, like: Tensor) -> Tensor:
    """[batch] -> [batch, 1, 1, 1]: the shape that scales whole images."""
    return values.view(-1, *[1] * (like.dim() - 1))


def loss_of(kind: Loss, answer: Tensor, target: Tensor, huber_delta: float) -> Tensor:
    """[batch]: mean over each image, never over the batch, in fp32. Huber is scaled to meet L2 at small errors."""
    answer, target = answer.float(), target.float()
    match kind:
        case "l2":
            each = (answer - target).square()
        case "l1":
            each = (answer - target).abs()
        case "huber":
            each = 2 * functional.huber_loss(answer, target, reduction="none", delta=huber_delta)
    return each.flatten(1).mean(1)


@dataclass(frozen=True, slots=True)
class Noised:
    """One batch on its way: what goes in, and what should come out."""

    x_t: Tensor
    target: Tensor
    t: Tensor


class Objective:
    """The tables on one device, and the two things a training step does with them."""

    def __init__(self, settings: Diffusion, process: Process, device: torch.device) -> None:
        self.settings, self.process = settings, process
        # Computed in float64, kept in fp32: in half precision the noise of the first timesteps is exactly zero.
        assert process.table is not None
        signal, noise = process.table
        self.signal, self.noise = signal.to(device, torch.float32), noise.to(device, torch.float32)
        weights = weights_of(settings.weighting, settings.prediction, signal, noise, gamma=settings.min_snr_gamma)
        self.weights = weights.to(device, torch.float32)

    def add_noise(self, x0: Tensor, noise: Tensor, t: Tensor) -> Noised:
        """x_t and the target, in fp32 whatever the precision of the model."""
        a, s = per_sample(self.signal[t], x0), per_sample(self.noise[t], x0)
        return Noised(a * x0 + s * noise, target_of(self.settings.prediction, x0, noise, a, s), t)

    def loss(self, answer: Tensor, noised: Noised) -> tuple[Tensor, Tensor]:
        """([batch] plain loss, [batch] weighted loss)."""
        plain = loss_of(self.settings.loss, answer, noised.target, self.settings.huber_delta)
        return plain, plain * self.weights[noised.t]
