"""The parts one by one, each alone: what the classes of a tutorial are called here.

    python examples/parts.py

Seconds on a CPU. docs/parts.md and docs/parts-quality.md describe each.
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import safelight as sl


def sampler(model: nn.Module, noise: Tensor) -> Tensor:
    for _ in range(8):
        noise = noise - 0.1 * model(noise)
    return noise


def main() -> None:
    torch.manual_seed(0)
    images = torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 8 - 1
    model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.SiLU(), nn.Conv2d(16, 1, 3, padding=1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    ema = sl.EMA(model, decay=0.999)  # the tutorial's EMA
    clip = sl.AdaptiveClipper(model.parameters())  # AdaptiveGradientClipper
    guard = sl.FiniteGuard(model, optimizer)  # detect_nan, NaN in the loss
    saves = sl.Checkpoints("ckpt/")  # save_checkpoint, load_checkpoint
    pics = sl.SampleGrid("samples/", sampler, noise=16, shape=(1, 8, 8))  # SampleVisualizer
    print(sl.estimate(model, (64, 1, 8, 8), optimizer="adamw"))  # estimate_memory

    for step in range(1, 31):
        x = images[torch.randint(len(images), (64,))]
        loss = (model(x + torch.randn_like(x)) - x).square().mean()
        loss.backward()
        clip()
        guard.step(loss)
        optimizer.zero_grad()
        ema.update()
        if step % 10 == 0:
            saves.save(step, model=model, optimizer=optimizer, ema=ema)
            pics.save(step, model, ema=ema)
    print(pics.timelapse(fps=2))

    samples = pics.draw(model, ema=ema, count=256).samples
    print(sl.FID(images).add(samples).compute())  # FIDCalculator
    print(sl.Diversity(images).add(samples).compute())  # DiversityAnalyzer
    print(saves.steps)


if __name__ == "__main__":
    main()
