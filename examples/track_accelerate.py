"""Safelight as a tracker of accelerate: what you log lands in the record, beside what the watch sees.

    python examples/track_accelerate.py --steps 200 --run runs/tracked
    safelight metrics runs/tracked

Seconds on a CPU.
"""

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn

from safelight.watching.tracker import Tracker


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--run", type=Path, default=Path("runs/tracked"))
    given = parser.parse_args()

    torch.manual_seed(0)
    images = torch.tensor(load_digits().data, dtype=torch.float32) / 8 - 1
    tracker = Tracker(given.run)
    accelerator = Accelerator(cpu=True, log_with=tracker)
    accelerator.init_trackers("digits", config={"lr": 1e-3, "batch_size": 64})
    model = nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 64))
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))

    watch = tracker.watch(model, optimizer)  # the same record also sees gradients, updates and the rest
    for step in range(given.steps):
        x0 = images[torch.randint(len(images), (64,))]
        noise = torch.randn_like(x0)
        loss = nn.functional.mse_loss(model((x0 + noise) / 2**0.5), noise)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        watch.step(loss)
        accelerator.log({"mine/loss": loss.item()}, step=step)
    accelerator.end_training()
    print(given.run)


if __name__ == "__main__":
    main()
