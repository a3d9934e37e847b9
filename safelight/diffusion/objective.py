"""What a training step does with images: noising, targets, the loss of each sample and its weight."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from safelight.config.tree import Diffusion, Loss
from safelight.diffusion.process import Process, per_sample
from safelight.diffusion.targets import TargetCoefficients, make_target, target_of
from safelight.diffusion.weighting import weights_of


def loss_of(kind: Loss, prediction: Tensor, target: Tensor, huber_delta: float) -> Tensor:
    """[batch]: mean over each image, never over the batch, in fp32. Huber is scaled to meet L2 at small errors."""
    prediction, target = prediction.float(), target.float()
    match kind:
        case "l2":
            each = (prediction - target).square()
        case "l1":
            each = (prediction - target).abs()
        case "huber":
            each = 2 * functional.huber_loss(prediction, target, reduction="none", delta=huber_delta)
    return each.flatten(1).mean(1)


@dataclass(frozen=True, slots=True)
class NoisedBatch:
    """One batch on its way: what goes in, and what should come out."""

    x_t: Tensor
    target: Tensor
    t: Tensor


class Objective:
    """A process and a target on one device, and what a training step does with them."""

    def __init__(
        self,
        settings: Diffusion,
        process: Process,
        device: torch.device,
        target_coefficients: TargetCoefficients | None = None,
    ) -> None:
        """`target_coefficients`: of a target that the settings have no name for."""
        self.settings, self.process, self.device = settings, process, device
        self.target_coefficients = target_coefficients or make_target(settings.prediction, settings.sigma_data)
        # Of discrete time. Computed in float64, kept in fp32: in half precision the noise of the first timesteps is
        # exactly zero.
        a, s = process.table or (torch.empty(0), torch.empty(0))
        self.signal_scale, self.noise_scale = a.to(device, torch.float32), s.to(device, torch.float32)
        self.weights = self._weights(a, s)

    def _weights(self, a: Tensor, s: Tensor) -> Tensor:
        chosen = self.settings
        weights = weights_of(
            chosen.weighting, self.target_coefficients, a, s, gamma=chosen.min_snr_gamma, sigma_data=chosen.sigma_data
        )
        return weights.to(self.device, torch.float32)

    def coefficients(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """(a, s), one of each for every time, in fp32."""
        if self.process.table is not None:
            return self.signal_scale[t], self.noise_scale[t]
        a, s = self.process.at(t)
        return a.float(), s.float()

    def add_noise(self, x0: Tensor, noise: Tensor, t: Tensor) -> NoisedBatch:
        """x_t and the target, in fp32 whatever the precision of the model."""
        a, s = (per_sample(each, x0) for each in self.coefficients(t))
        return NoisedBatch(a * x0 + s * noise, target_of(self.target_coefficients, x0, noise, a, s), t)

    def input(self, noised: NoisedBatch) -> tuple[Tensor, Tensor]:
        """What the network is called with."""
        return self.process.input(noised.x_t, noised.t)

    def loss(self, prediction: Tensor, noised: NoisedBatch) -> tuple[Tensor, Tensor]:
        """([batch] plain loss, [batch] weighted loss)."""
        plain = loss_of(self.settings.loss, prediction, noised.target, self.settings.huber_delta)
        if self.process.table is not None:
            return plain, plain * self.weights[noised.t]
        return plain, plain * self._weights(*self.process.at(noised.t))
