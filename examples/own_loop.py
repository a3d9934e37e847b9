"""The monitoring of a loop of your own: loss, gradients, samples, FID, diversity, best step and findings on one page.

    python examples/own_loop.py --steps 1500 --run runs/mine
    safelight dashboard runs/mine

Two minutes on a CPU. What belongs to Safelight is marked below.
"""

import argparse
from pathlib import Path

import torch
from diffusers import DDIMScheduler, UNet2DModel
from sklearn.datasets import load_digits
from torch import Tensor, nn

import safelight as sl

SCHEDULE = DDIMScheduler(1000)


@torch.no_grad()
def sampler(model: nn.Module, noise: Tensor) -> Tensor:
    for t in SCHEDULE.timesteps:
        noise = SCHEDULE.step(model(noise, t).sample, int(t), noise).prev_sample
    return noise


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--run", type=Path, default=Path("runs/mine"))
    parser.add_argument("--sampling-steps", type=int, default=20)
    given, _ = parser.parse_args(), torch.manual_seed(0)
    SCHEDULE.set_timesteps(given.sampling_steps)
    images = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 8 - 1
    blocks = {"down_block_types": ("DownBlock2D", "DownBlock2D"), "up_block_types": ("UpBlock2D", "UpBlock2D")}
    model = UNet2DModel(8, 1, 1, block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8, **blocks)
    optimizer, ema = torch.optim.AdamW(model.parameters(), lr=1e-3), sl.EMA(model, decay=0.995)

    plan = {"steps": given.steps, "sample_every": given.steps // 10 or 1, "evaluate_every": given.steps // 3 or 1}
    watched = {"ema": ema, "process": SCHEDULE, "prediction": "epsilon", "sampler": sampler, "data": images, **plan}
    with sl.watch(model, optimizer, run=given.run, **watched) as watch:  # <- Safelight
        for _ in range(given.steps):
            x0 = images[torch.randint(len(images), (64,))]
            noise, t = torch.randn_like(x0), torch.randint(1000, (64,))
            x_t = SCHEDULE.add_noise(x0, noise, t)  # type: ignore[arg-type]
            pred = model(x_t, t).sample
            loss = (pred - noise).square().mean((1, 2, 3))
            loss.mean().backward()
            optimizer.step()
            ema.update()
            optimizer.zero_grad()
            watch.step(loss, t=t, pred=pred, target=noise, x0=x0, noise=noise, x_t=x_t)  # <- Safelight
    print(watch.best_step, watch.report())


if __name__ == "__main__":
    main()
