"""What the model predicts: noising, targets, exact conversions, the loss of each sample and its weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

import torch
from torch import Tensor
from torch.nn import functional

from safelight.config.tree import Diffusion, Loss, Prediction, Weighting
from safelight.diffusion.schedule import NoiseSchedule


def per_sample(values: Tensor, like: Tensor) -> Tensor:
    """[batch] -> [batch, 1, 1, 1]: the shape that scales whole images."""
    return values.view(-1, *[1] * (like.dim() - 1))


def target_of(prediction: Prediction, x0: Tensor, noise: Tensor, a: Tensor, s: Tensor) -> Tensor:
    """What a perfect model would answer at x_t = a·x0 + s·noise."""
    match prediction:
        case "epsilon":
            return noise
        case "sample":
            return x0
        case "v_prediction":  # Salimans & Ho 2022
            return a * noise - s * x0
    assert_never(prediction)


def to_x0(prediction: Prediction, answer: Tensor, x_t: Tensor, a: Tensor, s: Tensor) -> Tensor:
    """The clean image that an answer stands for. For epsilon it needs a > 0."""
    match prediction:
        case "epsilon":
            return (x_t - s * answer) / a
        case "sample":
            return answer
        case "v_prediction":
            return a * x_t - s * answer
    assert_never(prediction)


def from_x0(prediction: Prediction, x0: Tensor, x_t: Tensor, a: Tensor, s: Tensor) -> Tensor:
    """The answer that stands for a clean image: the inverse of `to_x0`."""
    return target_of(prediction, x0, to_noise("sample", x0, x_t, a, s), a, s)


def to_noise(prediction: Prediction, answer: Tensor, x_t: Tensor, a: Tensor, s: Tensor) -> Tensor:
    """The noise that an answer stands for. For sample it needs s > 0."""
    match prediction:
        case "epsilon":
            return answer
        case "sample":
            return (x_t - a * answer) / s
        case "v_prediction":
            return s * x_t + a * answer
    assert_never(prediction)


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


def weights_of(weighting: Weighting, prediction: Prediction, snr: Tensor, gamma: float) -> Tensor:
    """The weight of each timestep. min-SNR (Hang et al. 2023) weighs the x0 error by min(snr, γ):
    an epsilon error is that divided by snr, a v error divided by snr + 1."""
    if weighting == "none":
        return torch.ones_like(snr)
    match prediction:
        case "sample":
            return snr.clamp(max=gamma)
        case "epsilon":
            return (gamma / snr).clamp(max=1)  # finite at snr 0, where min(snr, γ) / snr is 0 / 0
        case "v_prediction":
            return snr.clamp(max=gamma) / (snr + 1)
    assert_never(prediction)


@dataclass(frozen=True, slots=True)
class Noised:
    """One batch on its way: what goes in, and what should come out."""

    x_t: Tensor
    target: Tensor
    t: Tensor


class Objective:
    """The tables on one device, and the two things a training step does with them."""

    def __init__(self, settings: Diffusion, schedule: NoiseSchedule, device: torch.device) -> None:
        self.settings = settings
        # Computed in float64, kept in fp32: in half precision the noise of the first timesteps is exactly zero.
        self.signal = schedule.signal.to(device, torch.float32)
        self.noise = schedule.noise.to(device, torch.float32)
        weights = weights_of(settings.weighting, settings.prediction, schedule.snr, settings.min_snr_gamma)
        self.weights = weights.to(device, torch.float32)

    def add_noise(self, x0: Tensor, noise: Tensor, t: Tensor) -> Noised:
        """x_t and the target, in fp32 whatever the precision of the model."""
        a, s = per_sample(self.signal[t], x0), per_sample(self.noise[t], x0)
        return Noised(a * x0 + s * noise, target_of(self.settings.prediction, x0, noise, a, s), t)

    def loss(self, answer: Tensor, noised: Noised) -> tuple[Tensor, Tensor]:
        """([batch] plain loss, [batch] weighted loss)."""
        plain = loss_of(self.settings.loss, answer, noised.target, self.settings.huber_delta)
        return plain, plain * self.weights[noised.t]
