"""Train any nn.Module of (x, t) under Safelight. Stop it with Ctrl-C; the same command carries it on.

    python examples/own_module.py --steps 300 --run runs/own

About a minute on two CPU cores; the pictures are in the run folder, under samples.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn

import safelight


class Denoiser(nn.Module):
    """Convolutions that are told the time: x [n, channels, side, side] and t [n] in, the shape of x out."""

    def __init__(self, channels: int = 1, width: int = 64, timesteps: int = 1000) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Embedding(timesteps, width), nn.SiLU(), nn.Linear(width, width))
        self.enter = nn.Conv2d(channels, width, 3, padding=1)
        self.middle = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(4))
        self.leave = nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        time = self.time(t)[:, :, None, None]
        hidden = self.enter(x)
        for layer in self.middle:
            hidden = hidden + layer(nn.functional.silu(hidden + time))
        return self.leave(nn.functional.silu(hidden))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--run", type=Path, default=Path("runs/own"))
    given = parser.parse_args()

    torch.manual_seed(0)  # the initial weights are yours; all that follows is a function of train.seed
    model = Denoiser()
    if (given.run / "config.yaml").is_file():
        run = safelight.resume(given.run, model=model)  # a run folder holds weights, never code
    else:
        # Without labels, the model is called as model(x, t); with them, as model(x, t, label).
        settings = {"model.conditional": False, "sample.count": given.count}
        run = safelight.train("digits", run=given.run, steps=given.steps, settings=settings, model=model)
    print(max((run.path / "samples").glob("step_*.png")))


if __name__ == "__main__":
    main()
