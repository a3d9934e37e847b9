"""Your own diffusers loop with accelerate, under Safelight's watch: three lines, marked below.

    python examples/watch_diffusers.py --steps 200 --run runs/watched
    safelight metrics runs/watched

About a minute on two CPU cores.
"""

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.training_utils import EMAModel
from sklearn.datasets import load_digits
from torch import nn

import safelight


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--run", type=Path, default=Path("runs/watched"))
    given = parser.parse_args()

    torch.manual_seed(0)
    images = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 8 - 1
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        layers_per_block=1,
        block_out_channels=(32, 64),
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )
    scheduler = DDPMScheduler(num_train_timesteps=1000)
    ema = EMAModel(model.parameters(), decay=0.995)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer = accelerator.prepare(model, optimizer)

    watch = safelight.watch(model, optimizer, run=given.run, ema=ema, schedule=scheduler, prediction="epsilon")  # 1
    for _ in range(2 * given.steps):
        with accelerator.accumulate(model):
            x0 = images[torch.randint(len(images), (32,))]
            noise, t = torch.randn_like(x0), torch.randint(1000, (32,))
            x_t = scheduler.add_noise(x0, noise, t)
            predicted = model(x_t, t).sample
            loss = nn.functional.mse_loss(predicted, noise)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            if accelerator.sync_gradients:
                ema.step(model.parameters())
        watch.step(loss, t=t, x0=x0, noise=noise, x_t=x_t, pred=predicted, target=noise)  # 2
    watch.close()  # 3
    print(given.run)


if __name__ == "__main__":
    main()
