"""A textbook PyTorch loop under Safelight's watch: three lines, marked below.

    python examples/watch_plain.py --steps 200 --run runs/plain
    safelight metrics runs/plain

Seconds on a CPU.
"""

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import safelight


class Denoiser(nn.Module):
    """Any network of (x, t)."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.time, self.enter = nn.Embedding(1000, width), nn.Linear(64, width)
        self.body, self.leave = nn.Sequential(nn.SiLU(), nn.Linear(width, width), nn.SiLU()), nn.Linear(width, 64)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.leave(self.body(self.enter(x) + self.time(t)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--run", type=Path, default=Path("runs/plain"))
    given = parser.parse_args()

    torch.manual_seed(0)
    images = torch.tensor(load_digits().data, dtype=torch.float32) / 8 - 1
    alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    watch = safelight.watch(model, optimizer, run=given.run, schedule=alphas, prediction="epsilon")  # 1
    for _ in range(given.steps):
        x0 = images[torch.randint(len(images), (64,))]
        noise, t = torch.randn_like(x0), torch.randint(1000, (64,))
        signal = alphas[t][:, None]
        predicted = model(signal.sqrt() * x0 + (1 - signal).sqrt() * noise, t)
        loss = (predicted - noise).square().mean(1)
        loss.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.step(loss)  # 2
    watch.close()  # 3
    print(given.run)


if __name__ == "__main__":
    main()
