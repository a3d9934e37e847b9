"""A model of one's own, examined before training: a table of numbers, findings and advice. Nothing is trained.

    python examples/debugger.py
    safelight doctor --module examples.debugger:make

Seconds on a CPU.
"""

from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import safelight


class Denoiser(nn.Module):
    """Any network of (x, t)."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.time, self.enter = nn.Embedding(1000, width), nn.Conv2d(1, width, 3, padding=1)
        self.body = nn.Sequential(nn.SiLU(), nn.Conv2d(width, width, 3, padding=1), nn.SiLU())
        self.leave = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.leave(self.body(self.enter(x) + self.time(t)[:, :, None, None]))


def make() -> dict[str, Any]:
    """The arguments of `safelight.check`."""
    torch.manual_seed(0)
    model = Denoiser()
    images = torch.tensor(load_digits().images[:32], dtype=torch.float32)[:, None] / 8 - 1
    alphas_cumprod = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return {"model": model, "process": alphas_cumprod, "batch": images, "optimizer": optimizer}


def main() -> None:
    report = safelight.check(**make())
    print("healthy" if report.is_ok else "sick", len(report.rows))


if __name__ == "__main__":
    main()
