"""denoising-diffusion-pytorch under Safelight's watch: three lines, marked below.

    pip install denoising-diffusion-pytorch
    python examples/watch_lucidrains.py --steps 200 --run runs/lucidrains
    safelight metrics runs/lucidrains

About a minute on two CPU cores.
"""

import argparse
from pathlib import Path

import torch
from denoising_diffusion_pytorch import GaussianDiffusion, Unet
from ema_pytorch import EMA
from sklearn.datasets import load_digits

import safelight


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--run", type=Path, default=Path("runs/lucidrains"))
    given = parser.parse_args()

    torch.manual_seed(0)
    images = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 16
    model = Unet(dim=16, dim_mults=(1, 2), channels=1, flash_attn=False)
    diffusion = GaussianDiffusion(model, image_size=8, timesteps=1000, objective="pred_v")
    optimizer = torch.optim.Adam(diffusion.parameters(), lr=1e-3)
    ema = EMA(model, beta=0.995, update_every=1)

    schedule = diffusion.alphas_cumprod
    watch = safelight.watch(  # 1
        model, optimizer, run=given.run, ema=ema, schedule=schedule, prediction="v_prediction"
    )
    for _ in range(given.steps):
        loss = diffusion(images[torch.randint(len(images), (32,))])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        ema.update()
        watch.step(loss)  # 2
    watch.close()  # 3
    print(given.run)


if __name__ == "__main__":
    main()
