"""A loop for production: EMA, clipping, mixed precision, NaN guard, checkpoints, and a resume to the same bytes.

    python examples/production_loop.py --steps 200 --folder runs/production

Seconds on a CPU. Kill it and start it again: it continues where it was.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import safelight as sl


class Denoiser(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.time, self.enter = nn.Embedding(1000, width), nn.Linear(64, width)
        self.leave = nn.Sequential(nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 64))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.leave(self.enter(x) + self.time(t))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--folder", default="runs/production")
    given = parser.parse_args()
    torch.manual_seed(0)
    images = torch.tensor(load_digits().data, dtype=torch.float32) / 8 - 1
    alphas, model = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0), Denoiser()
    optimizer, ema = torch.optim.AdamW(model.parameters(), lr=1e-3), sl.EMA(model, decay=0.999)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=20)
    clip, guard = sl.AdaptiveClipper(model.parameters(), initial=1.0), sl.FiniteGuard(model, optimizer)
    parts = {"model": model, "optimizer": optimizer, "ema": ema, "warmup": warmup, "clip": clip, "guard": guard}
    saves = sl.Checkpoints(given.folder, keep=2)
    start = saves.load(**parts) or 0
    for step in range(start, given.steps):
        x0 = images[torch.randint(len(images), (64,))]
        noise, t = torch.randn_like(x0), torch.randint(1000, (64,))
        kept = alphas[t][:, None]
        with torch.autocast("cpu", torch.bfloat16):
            loss = (model(kept.sqrt() * x0 + (1 - kept).sqrt() * noise, t) - noise).square().mean()
        loss.backward()
        clip()
        if guard.step(loss):  # in place of optimizer.step(): no NaN reaches the weights
            ema.update()
            warmup.step()
        optimizer.zero_grad()
        if (step + 1) % 50 == 0 or step + 1 == given.steps:
            saves.save(step + 1, **parts, score=loss, extra={"images": 64 * (step + 1)})
    print(f"steps {saves.steps}, refused {guard.refused}")


if __name__ == "__main__":
    main()
