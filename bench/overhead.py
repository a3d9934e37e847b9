"""Images per second of `safelight train` against a bare PyTorch loop around the same U-Net, in turns."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional

from bench.measure import HOST, Alternation, Block, Enough, Spread, ratios, speeds, write_table
from safelight import start
from safelight.config import Config
from safelight.config.resolve import resolve
from safelight.data.images import Images
from safelight.data.prepare import open_images
from safelight.diffusion.schedule import make_schedule
from safelight.diffusion.targets import target_of
from safelight.model.unet import predict
from safelight.training.build import infer_data_settings
from safelight.training.network import build_model
from safelight.training.optimizer import learning_rate
from safelight.training.runtime import choose_device
from safelight.training.saving import checkpoint_interval

TARGET = 0.97
BARE = "bare loop"
CASES = {
    "digits": {},
    "16px": {"data.image_size": 16, "model.widths": (32, 64, 96), "train.batch_size": 64},
}


def configure(case: str) -> Config:
    """The digits preset, all default rates included, but for the pictures, which are no part of the comparison."""
    config = resolve(preset="digits", settings=CASES[case])
    return resolve(base=config, settings={"sample.every": config.train.steps + 1})


def bare_loop(config: Config, images: Images, block: int) -> Block:
    """What one writes by hand: no EMA, no record, no checkpoint, no look at the loss, everything in memory."""
    device, size = choose_device(config.train.device), config.train.batch_size
    model = build_model(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.optimizer.lr, betas=(0.9, 0.99), fused=True)
    schedule = make_schedule(config.diffusion)
    signal, noisiness = (
        table.float().to(device).view(-1, 1, 1, 1) for table in (schedule.signal_scale, schedule.noise_scale)
    )
    pixels = torch.from_numpy(images.pixels).permute(0, 3, 1, 2).contiguous().to(device)
    names = torch.from_numpy(images.labels).to(device) if config.model.conditional else None
    rates = (learning_rate(config.optimizer, step, config.train.steps) for step in range(config.train.steps))

    def train() -> None:
        for _ in range(block):
            chosen = torch.randint(len(pixels), (size,), device=device)
            x0 = pixels[chosen] / 127.5 - 1
            noise = torch.randn_like(x0)
            t = torch.randint(len(signal), (size,), device=device)
            a, s = signal[t], noisiness[t]
            answer = predict(model, a * x0 + s * noise, t, None if names is None else names[chosen])
            functional.mse_loss(answer, target_of(config.diffusion.prediction, x0, noise, a, s)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.clipping.limit)
            optimizer.param_groups[0]["lr"] = next(rates)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return train


def measure(config: Config, block: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of every block, by contender."""
    images = open_images(config.data)
    guests = {BARE: bare_loop(infer_data_settings(config, images), images, block)}
    alternation = Alternation(guests, block=block, rounds=rounds)
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Enough):
        start.train(config, run=Path(folder) / "run", terminal=alternation)
    return alternation.seconds


@dataclass(frozen=True, slots=True)
class Result:
    """One case, measured."""

    case: str
    config: Config
    block: int
    seconds: dict[str, list[float]]

    @property
    def ratio(self) -> Spread:
        return ratios(self.seconds[HOST], self.seconds[BARE])

    def row(self) -> list[str]:
        config, images = self.config, self.block * self.config.train.batch_size
        bare, ours = self.seconds[BARE], self.seconds[HOST]
        return [
            f"{self.case}: {config.data.image_size} px, widths {config.model.widths}, batch {config.train.batch_size}",
            f"{len(ours)} x {self.block} steps, checkpoint every {checkpoint_interval(config)}",
            speeds(bare, images).show(".0f"),
            speeds(ours, images).show(".0f"),
            self.ratio.show(".3f"),
            f"{sum(bare) / sum(ours):.3f}",
        ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs="+", choices=CASES, default=[*CASES], help="which models to measure")
    parser.add_argument("--rounds", type=int, default=12, help="blocks of each contender")
    parser.add_argument("--block", type=int, help="steps per block; without it, the steps between two checkpoints")
    options = parser.parse_args()
    results = []
    for case in options.case:
        config = configure(case)
        block, steps = options.block or checkpoint_interval(config), config.train.steps
        if (options.rounds + 1) * block > steps:
            parser.error(f"{options.rounds} rounds and one to warm up, of {block} steps each, are more than {steps}.")
        results.append(Result(case, config, block, measure(config, block, options.rounds)))
    worst = min(result.ratio.median for result in results)
    columns = ["model", "blocks", "bare loop, images/s", "safelight, images/s", "ratio", "ratio of the sums"]
    notes = [*NOTES, f"Wanted: a ratio of at least {TARGET}. Worst: {worst:.3f}."]
    write_table("overhead", "What the watch costs", columns, [result.row() for result in results], notes)
    return 0 if worst >= TARGET else 1


NOTES = [
    "Median, with the quartiles over the blocks; the ratio is taken within each round.",
    "safelight: `start.train` unchanged, with record, EMA, clipping, refusal of non-finite updates, background "
    "checkpoints, EMA snapshots and the fixed set at the default rates of the whole run. The terminal is off, "
    "and no picture is drawn. A block ends when the checkpoint that it began is on the disk.",
    "bare loop: the same U-Net, schedule, batch and labels, fused AdamW, clip_grad_norm_, randn; nothing else.",
]


if __name__ == "__main__":
    sys.exit(main())
