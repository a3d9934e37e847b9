"""Tiny networks and batches for the probes to look at."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from safelight.config.tree import Prediction
from safelight.diffusion.targets import target_of
from safelight.probes.forward_pass import Call, ForwardPass, ProcessSpec
from safelight.probes.update import StateBefore, copy_state

ALPHAS = torch.linspace(0.9999, 0.02, 1000, dtype=torch.float64).square()
SHAPE = (1, 4, 4)


class Denoiser(nn.Module):
    """A network of (x, t) and, with `classes`, a label; sines for the timestep, dropout that is on in training."""

    def __init__(self, *, classes: int = 0, dropout: float = 0.1, width: int = 24) -> None:
        super().__init__()
        self.body, self.time, self.out = nn.Linear(16, width), nn.Linear(16, width), nn.Linear(width, 16)
        self.act, self.drop = nn.SiLU(), nn.Dropout(dropout)
        self.labels = nn.Embedding(classes, width) if classes else None

    def code(self, t: Tensor) -> Tensor:
        angles = t.float()[:, None] * torch.logspace(0, -3, 8, device=t.device)
        return torch.cat([angles.sin(), angles.cos()], dim=1)

    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        hidden = self.body(x.flatten(1)) + self.time(self.code(t))
        if self.labels is not None and labels is not None:
            hidden = hidden + self.labels(labels)
        return self.out(self.drop(self.act(hidden))).view_as(x)


def network(kind: type[Denoiser] = Denoiser, **how: Any) -> Denoiser:
    torch.manual_seed(0)
    return kind(**how)


def batch(size: int = 16, seed: int = 1, shape: tuple[int, ...] = SHAPE) -> tuple[Tensor, Tensor, Tensor]:
    """(x0 in [-1, 1], noise, t)."""
    random = torch.Generator().manual_seed(seed)
    x0 = torch.rand(size, *shape, generator=random) * 2 - 1
    return x0, torch.randn(size, *shape, generator=random), torch.randint(0, 1000, (size,), generator=random)


def noised(x0: Tensor, noise: Tensor, t: Tensor, alphas: Tensor = ALPHAS) -> Tensor:
    kept = alphas[t].view(-1, *[1] * (x0.dim() - 1))
    return (kept.sqrt() * x0.double() + (1 - kept).sqrt() * noise.double()).float()


def declared(prediction: Prediction | None = "epsilon", alphas: Tensor = ALPHAS) -> ProcessSpec:
    return ProcessSpec(alphas, prediction)


def micro_batch(seed: int = 1, size: int = 16, prediction: Prediction = "epsilon", **changes: Any) -> ForwardPass:
    """A batch as a healthy loop makes it, without a network."""
    x0, noise, t = batch(size, seed)
    kept = ALPHAS[t].float().view(-1, 1, 1, 1)
    target = target_of(prediction, x0, noise, kept.sqrt(), (1 - kept).sqrt())
    made: dict[str, Any] = {
        "x0": x0,
        "noise": noise,
        "t": t,
        "x_t": noised(x0, noise, t),
        "target": target,
        "loss": torch.ones(()),
    }
    return ForwardPass(**(made | changes))


def step(
    model: nn.Module, seed: int = 1, size: int = 16, labels: Tensor | None = None, **changes: Any
) -> tuple[ForwardPass, Tensor]:
    """(the specimen of a call of the network, the loss with its graph)."""
    x0, noise, t = batch(size, seed)
    x_t = noised(x0, noise, t)
    random = torch.get_rng_state()
    inputs = (x_t, t) if labels is None else (x_t, t, labels)
    answer = model(*inputs)
    loss = (answer - noise).square().mean()
    call = Call(inputs, {}, answer, model.training, random=random).detached()
    made: dict[str, Any] = {
        "x0": x0,
        "noise": noise,
        "t": t,
        "x_t": x_t,
        "target": noise,
        "pred": answer.detach(),
        "labels": labels,
    }
    return ForwardPass(**(made | {"loss": loss.detach(), "call": call} | changes)), loss


def named_parameters(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, p) for name, p in model.named_parameters() if p.requires_grad]


def after_backward(
    model: Denoiser, *, seeds: tuple[int, ...] = (1,), **how: Any
) -> tuple[StateBefore, list[ForwardPass]]:
    """The gradients of a window of micro-batches, averaged."""
    micro_batches_seen = []
    for seed in seeds:
        micro_batch, loss = step(model, seed)
        (how.get("change", lambda value: value)(loss) / how.get("divide", len(seeds))).backward()
        micro_batches_seen.append(micro_batch)
    return copy_state(named_parameters(model), how.get("optimizer")), micro_batches_seen
