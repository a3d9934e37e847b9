"""A Lightning module under Safelight's watch: one callback, marked below.

    pip install lightning
    python examples/watch_lightning.py --steps 200 --run runs/lightning
    safelight metrics runs/lightning

Seconds on a CPU.
"""

import argparse
from pathlib import Path

import pytorch_lightning as lightning
import torch
from diffusers import DDPMScheduler
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from safelight.watching.lightning import WatchCallback


class Diffusion(lightning.LightningModule):
    def __init__(self, scheduler: DDPMScheduler, width: int = 32) -> None:
        super().__init__()
        self.scheduler = scheduler
        self.time, self.enter = nn.Embedding(1000, width), nn.Conv2d(1, width, 3, padding=1)
        self.body, self.leave = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        hidden = nn.functional.silu(self.enter(x) + self.time(t)[:, :, None, None])
        return self.leave(nn.functional.silu(self.body(hidden)))

    def training_step(self, batch: list[Tensor], _: int) -> dict[str, Tensor]:
        noise, t = torch.randn_like(batch[0]), torch.randint(1000, (len(batch[0]),))
        predicted = self(self.scheduler.add_noise(batch[0], noise, t), t)
        # What is returned beside the loss lets Safelight tell it by noise level.
        return {"loss": nn.functional.mse_loss(predicted, noise), "t": t, "pred": predicted.detach(), "target": noise}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--run", type=Path, default=Path("runs/lightning"))
    given = parser.parse_args()

    lightning.seed_everything(0)
    images = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 8 - 1
    scheduler = DDPMScheduler()
    trainer = lightning.Trainer(
        max_steps=given.steps,
        accumulate_grad_batches=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        callbacks=[WatchCallback(given.run, schedule=scheduler)],  # the one line
    )
    trainer.fit(Diffusion(scheduler), DataLoader(TensorDataset(images), batch_size=32, shuffle=True))
    print(given.run)


if __name__ == "__main__":
    main()
