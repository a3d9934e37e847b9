"""Loops in the manner of other people's, small enough for a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

ALPHAS = torch.cos(torch.linspace(0.02, 1.55, 100)).square()


class Denoiser(nn.Module):
    """Any network of (x, t)."""

    def __init__(self) -> None:
        super().__init__()
        self.time, self.body, self.out = nn.Embedding(100, 16), nn.Linear(64, 16), nn.Linear(16, 64)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.out(self.drop(functional.silu(self.body(x) + self.time(t))))


def batches(steps: int, size: int = 12) -> list[tuple[Tensor, Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(size, 64, generator=generator),
            torch.randn(size, 64, generator=generator),
            torch.randint(0, 100, (size,), generator=generator),
        )
        for _ in range(steps)
    ]


def plain_loop(
    steps: int, attach: Callable[[nn.Module, Any, Any], Any] | None = None, *, accumulate: int = 1, fused: bool = False
) -> tuple[nn.Module, list[Tensor]]:
    """A textbook loop with clipping, a schedule of the learning rate, an average, and maybe accumulation."""
    torch.manual_seed(0)
    model, average = Denoiser(), Denoiser()
    average.load_state_dict(model.state_dict())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused)
    watch = attach(model, optimizer, average) if attach is not None else None
    for number, (x0, noise, t) in enumerate(batches(steps * accumulate)):
        alpha = ALPHAS[t][:, None]
        predicted = model(alpha.sqrt() * x0 + (1 - alpha).sqrt() * noise, t)
        loss = functional.mse_loss(predicted, noise)
        (loss / accumulate).backward()
        if (number + 1) % accumulate == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                for shadow, live in zip(average.parameters(), model.parameters(), strict=True):
                    shadow.lerp_(live, 0.05)
        if watch is not None:
            watch.step(loss, t=t, pred=predicted, target=noise)
    if watch is not None:
        watch.close()
    return model, [p.detach().clone() for p in model.parameters()]
