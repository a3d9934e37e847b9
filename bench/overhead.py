"""Images per second of `safelight train` against a bare PyTorch loop around the same U-Net, in turns."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

import torch
from torch.nn import functional

from bench.measure import HOST, Alternation, Block, Enough, ratios, speeds, write_table
from safelight import session
from safelight.config import Config
from safelight.config.resolve import resolve
from safelight.data.sources import Images, open_images
from safelight.diffusion.objective import target_of
from safelight.diffusion.schedule import make_schedule
from safelight.model.unet import predict
from safelight.train.build import build_model, fit_to_data
from safelight.train.engine import choose_device
from safelight.train.optimizer import learning_rate
from safelight.train.trainer import checkpoint_interval

TARGET = 0.97
BARE = "bare loop"
CASES = {
    "digits": {},
    "16px": {"data.image_size": 16, "model.widths": (32, 64, 96), "train.batch_size": 64},
}


def configure(case: str, steps: int | None) -> Config:
    """The digits preset, all default rates included, but for the pictures, which are no part of the comparison."""
    config = resolve(preset="digits", settings=CASES[case])
    steps = steps or config.train.steps
    return resolve(base=config, settings={"train.steps": steps, "sample.every": steps + 1, "sample.count": 1})


def bare_loop(config: Config, images: Images, block: int) -> Block:
    """What one writes by hand: no EMA, no record, no checkpoint, no look at the loss, everything in memory."""
    device, size = choose_device(config.train.device), config.train.batch_size
    model = build_model(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.optimizer.lr, betas=(0.9, 0.99), fused=True)
    schedule = make_schedule(config.diffusion)
    signal, noisiness = (table.float().to(device).view(-1, 1, 1, 1) for table in (schedule.signal, schedule.noise))
    pixels = torch.from_numpy(images.pixels).permute(0, 3, 1, 2).contiguous().to(device)
    step = 0

    def train() -> None:
        nonlocal step
        for _ in range(block):
            x0 = pixels[torch.randint(len(pixels), (size,), device=device)] / 127.5 - 1
            noise = torch.randn_like(x0)
            t = torch.randint(len(signal), (size,), device=device)
            a, s = signal[t], noisiness[t]
            answer = predict(model, a * x0 + s * noise, t, None)
            functional.mse_loss(answer, target_of(config.diffusion.prediction, x0, noise, a, s)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.clipping.limit)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(config.optimizer, step, config.train.steps)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1

    return train


def measure(config: Config, block: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of every block, by contender."""
    images = open_images(config.data)
    guests = {BARE: bare_loop(fit_to_data(config, images), images, block)}
    alternation = Alternation(guests, block=block, rounds=rounds)
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Enough):
        session.train(config, run=Path(folder) / "run", terminal=alternation)
    return alternation.seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs="+", choices=CASES, default=[*CASES], help="which models to measure")
    parser.add_argument("--rounds", type=int, default=12, help="blocks of each contender")
    parser.add_argument("--block", type=int, help="steps per block; without it, the steps between two checkpoints")
    parser.add_argument("--steps", type=int, help="length that the run believes to have; decides the default rates")
    options = parser.parse_args()
    rows, worst = [], float("inf")
    for case in options.case:
        config = configure(case, options.steps)
        interval = checkpoint_interval(config)
        block = options.block or interval
        if (options.rounds + 1) * block > config.train.steps:
            parser.error(f"{options.rounds} rounds of {block} steps and one to warm up are more than the "
                         f"{config.train.steps} steps of {case}. Use fewer rounds, smaller blocks or more --steps.")  # fmt: skip
        seconds = measure(config, block, options.rounds)
        ratio = ratios(seconds[HOST], seconds[BARE])
        worst = min(worst, ratio.median)
        images = block * config.train.batch_size
        rows.append(
            [
                f"{case}: {config.data.image_size} px, widths {config.model.widths}, batch {config.train.batch_size}",
                f"{len(seconds[HOST])} x {block} steps, checkpoint every {interval}",
                speeds(seconds[BARE], images).show(".0f"),
                speeds(seconds[HOST], images).show(".0f"),
                ratio.show(".3f"),
                f"{sum(seconds[BARE]) / sum(seconds[HOST]):.3f}",
            ]
        )
    write_table(
        "overhead",
        "What the watch costs",
        ["model", "blocks", "bare loop, images/s", "safelight, images/s", "ratio", "ratio of the sums"],
        rows,
        [
            "Median, with the quartiles over the blocks; the ratio is taken within each round.",
            "safelight: `session.train` unchanged, with record, EMA, clipping, refusal of non-finite updates, "
            "background checkpoints and the fixed probe set at their default rates. The terminal is off, and no "
            "picture is drawn. A block ends when the checkpoint it began is on the disk.",
            "bare loop: the same U-Net, schedule and batch, fused AdamW, clip_grad_norm_, randn; nothing else.",
            f"Wanted: a ratio of at least {TARGET}. Worst: {worst:.3f}.",
        ],
    )
    return 0 if worst >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
