"""Time to quality: the distance of samples against seconds and images, of Safelight and of what others train with.

    pip install --no-deps --target build/peers denoising-diffusion-pytorch ema-pytorch einops pytorch-fid torchvision
    python -m bench.race --peers build/peers                        # hours, on a quiet machine
    python -m bench.race --steps 40 --seeds 1 --samples 64          # minutes, to try it
    python -m bench.race --data photos/ --image-size 32             # a data set that nothing was tuned on

Every contender trains on the same PNGs with as many parameters, batches and steps; samples are drawn with DDIM from its
averaged weights with as many passes. A clock runs while it trains, with all that its own trainer does meanwhile, and
stands while its samples are measured. Variants of a peer differ in what its own flags and arguments offer.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from diffusers import DDIMScheduler, DDPMScheduler
from diffusers.optimization import get_scheduler
from diffusers.training_utils import EMAModel
from PIL import Image
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from bench.measure import write_table
from bench.peers import import_lucidrains
from bench.recipe import Statistics
from safelight.config import Config
from safelight.config.resolve import resolve
from safelight.data.prepare import open_images
from safelight.evaluate.features import extract, load_extractor
from safelight.evaluate.networks.pixels import quantise
from safelight.generate import Request, generate
from safelight.model.unet import predict
from safelight.opened import load_model
from safelight.start import train
from safelight.terminal import Terminal
from safelight.training.build import infer_data_settings
from safelight.training.network import build_model
from safelight.training.step_reporter import StepSummary

MARKS, DDIM_STEPS, REFERENCES = 6, 50, 5000
OURS = "safelight"
SAFELIGHT: dict[str, dict[str, Any]] = {
    OURS: {},
    "EDM's recipe, same network": {"diffusion.process": "edm", "diffusion.prediction": "edm"},
}
DIFFUSERS: dict[str, dict[str, Any]] = {
    "diffusers script": {},
    "diffusers script, rate 1e-3": {"lr": 1e-3, "warmup": 50},
    "diffusers script, rate 1e-3, cosine betas": {"lr": 1e-3, "warmup": 50, "betas": "squaredcos_cap_v2"},
}
LUCIDRAINS: dict[str, dict[str, Any]] = {
    "lucidrains": {},
    "lucidrains, rate 1e-3, no flips": {"train_lr": 1e-3, "augment_horizontal_flip": False},
    "lucidrains, rate 3e-3, no flips": {"train_lr": 3e-3, "augment_horizontal_flip": False},
}
LUCIDRAINS_WIDTHS = (24, (1, 2, 2))


@dataclass(frozen=True, slots=True)
class Task:
    folder: Path  # of PNGs
    config: Config  # of Safelight: network, batch, length
    samples: int
    package: ModuleType | None

    @property
    def marks(self) -> list[int]:
        steps = self.config.train.steps
        return sorted({max(1, round(steps * (i + 1) / MARKS)) for i in range(MARKS)})


@dataclass(slots=True)
class Curve:
    """One run: seconds of wall and of processors at each mark, and the distance there."""

    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    distances: list[float] = field(default_factory=list)


Measure = Callable[[Tensor], float]


class Clock:
    """Runs while somebody trains."""

    def __init__(self) -> None:
        self.wall = self.processor = 0.0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        begun = time.perf_counter(), time.process_time()
        yield
        self.wall += time.perf_counter() - begun[0]
        self.processor += time.process_time() - begun[1]


class Marks(Terminal):
    """Notes when the run passes a step."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.steps, self.wall, self.processor = [0], [time.perf_counter()], [time.process_time()]

    def show(self, progress: StepSummary) -> None:
        self.steps.append(progress.step)
        self.wall.append(time.perf_counter())
        self.processor.append(time.process_time())

    def at(self, step: int) -> tuple[float, float]:
        wall, processor = (float(np.interp(step, self.steps, each)) - each[0] for each in (self.wall, self.processor))
        return wall, processor


def safelight_run(task: Task, settings: Mapping[str, Any], seed: int, measure: Measure) -> Curve:
    """The whole command: start, preflight, diagnosis, pictures, checkpoints. They are kept and measured afterwards."""
    every = task.marks[0]
    config = resolve(base=task.config, settings={
        **settings, "train.seed": seed, "checkpoint.every": every, "checkpoint.keep_every": every})  # fmt: skip
    curve = Curve()
    with tempfile.TemporaryDirectory() as folder:
        screen = Marks()
        run = train(config, run=Path(folder) / "run", terminal=screen)
        sampler = "ddim" if config.diffusion.process == "vp" else "euler"
        for mark in task.marks:
            saved = max(step for step in (*range(every, mark + 1, every), config.train.steps) if step <= mark)
            loaded = load_model(run.path, step=saved)
            drawn = generate(
                loaded.model, loaded.config, Request(task.samples, seed=1, sampler=sampler, steps=DDIM_STEPS)
            )
            add(curve, screen.at(saved), measure(drawn))
    return curve


def diffusers_run(task: Task, settings: Mapping[str, Any], seed: int, measure: Measure) -> Curve:
    """Ours, in the manner of diffusers' unconditional example, with its defaults where `settings` say nothing."""
    torch.manual_seed(seed)
    steps, size = task.config.train.steps, task.config.train.batch_size
    clock, curve, done = Clock(), Curve(), 0
    with clock.running():
        model = build_model(task.config).train()
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=settings.get("lr", 1e-4), betas=(0.95, 0.999), weight_decay=1e-6, eps=1e-8
        )
        betas = settings.get("betas", "linear")
        noising = DDPMScheduler(num_train_timesteps=1000, beta_schedule=betas)
        ema = EMAModel(model.parameters(), decay=0.9999, use_ema_warmup=True, inv_gamma=1.0, power=0.75)
        rate = get_scheduler(
            "cosine", optimizer, num_warmup_steps=settings.get("warmup", 500), num_training_steps=steps
        )
        batches = endless(DataLoader(TensorDataset(load(task.folder)), batch_size=size, shuffle=True, drop_last=True))
    for mark in task.marks:
        with clock.running():
            for _ in range(mark - done):
                clean = next(batches)[0]
                noise, t = torch.randn_like(clean), torch.randint(0, 1000, (size,))
                loss = functional.mse_loss(predict(model, noising.add_noise(clean, noise, t), t, None), noise)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                rate.step()
                optimizer.zero_grad()
                ema.step(model.parameters())
            done = mark
        ema.store(model.parameters())
        ema.copy_to(model.parameters())
        model.eval()
        drawn = ddim(model, task, DDIMScheduler(num_train_timesteps=1000, beta_schedule=betas))
        model.train()
        ema.restore(model.parameters())
        add(curve, (clock.wall, clock.processor), measure(drawn))
    return curve


def lucidrains_run(task: Task, settings: Mapping[str, Any], seed: int, measure: Measure) -> Curve:
    """Its own Trainer with its defaults where `settings` say nothing; no pictures and no FID of its own."""
    package, clock, curve = task.package, Clock(), Curve()
    assert package is not None
    torch.manual_seed(seed)
    dim, multiples = LUCIDRAINS_WIDTHS
    side, channels = task.config.data.image_size, task.config.data.channels
    with tempfile.TemporaryDirectory() as results, quiet():
        with clock.running():
            network = package.Unet(dim=dim, dim_mults=multiples, channels=channels, flash_attn=True)
            diffusion = package.GaussianDiffusion(
                network, image_size=side, timesteps=1000, sampling_timesteps=DDIM_STEPS
            )
            trainer = package.Trainer(
                diffusion, str(task.folder), train_batch_size=task.config.train.batch_size, train_num_steps=0,
                save_and_sample_every=1 << 30, calculate_fid=False, results_folder=results, **settings,
            )  # fmt: skip
        for mark in task.marks:
            with clock.running():
                trainer.train_num_steps = mark
                trainer.train()
            with torch.no_grad():
                drawn = trainer.ema.ema_model.sample(batch_size=task.samples) * 2 - 1
            add(curve, (clock.wall, clock.processor), measure(drawn))
    return curve


def add(curve: Curve, seconds: tuple[float, float], distance: float) -> None:
    curve.seconds.append(seconds[0])
    curve.processor.append(seconds[1])
    curve.distances.append(distance)


@torch.no_grad()
def ddim(model: torch.nn.Module, task: Task, scheduler: DDIMScheduler) -> Tensor:
    side, channels = task.config.data.image_size, task.config.data.channels or 3
    x = torch.randn(task.samples, channels, side, side, generator=torch.Generator().manual_seed(1))
    scheduler.set_timesteps(DDIM_STEPS)
    for t in scheduler.timesteps:
        answer = torch.cat([predict(model, part, t.expand(len(part)), None) for part in x.split(128)])
        x = scheduler.step(answer, int(t), x).prev_sample  # type: ignore[union-attr]
    return x.clamp(-1, 1)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        yield


def endless(loader: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from loader


def load(folder: Path) -> Tensor:
    """[n, channels, side, side] in [-1, 1]."""
    rows = []
    for path in sorted(folder.glob("*.png")):
        with Image.open(path) as image:
            pixels = np.asarray(image, np.float32)
        rows.append(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))
    return torch.from_numpy(np.stack(rows)) / 127.5 - 1


def make_task(given: argparse.Namespace, folder: Path, package: ModuleType | None) -> Task:
    """The images of a source, cut to size once, as PNGs that everybody reads."""
    source = resolve(settings={"data.source": given.data, "data.image_size": given.image_size}).data
    images = open_images(source)
    pngs = folder / "images"
    pngs.mkdir()
    for number in range(min(len(images), given.images)):
        pixels = np.asarray(images.pixels[number])
        Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(pngs / f"{number:06d}.png")
    config = resolve(settings={
        "data.source": str(pngs), "data.image_size": given.image_size, "model.widths": (32, 64, 64),
        "model.norm_groups": 8, "model.attention": (given.image_size // 4,), "train.steps": given.steps,
        "train.batch_size": given.batch_size, "data.cache": str(folder / "cache"),
    })  # fmt: skip
    return Task(pngs, infer_data_settings(config, open_images(config.data)), given.samples, package)


def first_at(curves: Sequence[Curve], distance: float) -> float:
    """Seconds until the mean curve is that near, between its marks in a straight line."""
    seconds = np.mean([curve.seconds for curve in curves], 0)
    distances = np.minimum.accumulate(np.mean([curve.distances for curve in curves], 0))
    if distances[-1] > distance:
        return math.inf
    place = int(np.argmax(distances <= distance))
    if place == 0:
        return float(seconds[0])
    high, low = distances[place - 1], distances[place]
    return float(seconds[place - 1] + (seconds[place] - seconds[place - 1]) * (high - distance) / max(high - low, 1e-9))


def report(task: Task, found: Mapping[str, list[Curve]], real: float, name: str) -> None:
    rows: list[Sequence[object]] = []
    for contender, curves in found.items():
        for place, mark in enumerate(task.marks):
            wall, processor, distances = (
                [getattr(curve, kind)[place] for curve in curves] for kind in ("seconds", "processor", "distances")
            )
            error = statistics.stdev(distances) / math.sqrt(len(distances)) if len(distances) > 1 else math.nan
            seconds, computed = f"{statistics.mean(wall):.0f}", f"{statistics.mean(processor):.0f}"
            distance = f"{statistics.mean(distances):.1f} ± {error:.1f}"
            rows.append((contender, f"{mark * task.config.train.batch_size:,}", seconds, computed, distance))
    notes = []
    for contender, curves in found.items():
        if contender == OURS or not found.get(OURS):
            continue
        aim = float(np.mean([curve.distances[-1] for curve in curves]))
        own, theirs = first_at(found[OURS], aim), first_at(curves, aim)
        notes.append(
            f"{contender} ends at {aim:.1f} after {theirs:.0f} s; Safelight is there after {own:.0f} s: "
            f"{own / theirs:.2f} of its time."
        )
    spent = sum(curve.seconds[-1] for curves in found.values() for curve in curves)
    seeds = max(map(len, found.values()), default=0)
    write_table(
        name,
        f"Time to quality on {task.config.data.image_size} px",
        ("contender", "images", "wall seconds", "processor seconds", f"FD-lite0 of {task.samples} samples"),
        rows,
        (
            f"Real against real: {real:.1f}. {seeds} seeds, means and standard errors; one contender after the other, "
            f"the order turned round for every seed. Training took {spent:.0f} s in all, all variants included.",
            *notes,
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="fashion-mnist", help="a source of safelight: a folder, digits, …")
    parser.add_argument("--image-size", type=int, default=16)
    parser.add_argument("--images", type=int, default=10_000, help="at most")
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=1024)
    parser.add_argument("--peers", type=Path, help="the folder that denoising-diffusion-pytorch was put into")
    parser.add_argument("--only", nargs="*", help="these contenders only")
    parser.add_argument("--name", default="race", help="of the table in bench/results")
    given = parser.parse_args()
    package = import_lucidrains(given.peers)
    runs = {name: (safelight_run, settings) for name, settings in SAFELIGHT.items()}
    runs |= {name: (diffusers_run, settings) for name, settings in DIFFUSERS.items()}
    runs |= {name: (lucidrains_run, settings) for name, settings in LUCIDRAINS.items()} if package is not None else {}
    chosen = {name: each for name, each in runs.items() if given.only is None or name in given.only}
    with tempfile.TemporaryDirectory() as folder:
        task = make_task(given, Path(folder), package)
        pixels = load(task.folder)
        order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
        count = min(given.samples, len(order) // 2)
        extractor = load_extractor("lite0", image_size=given.image_size, say=print)

        def features(images: Tensor) -> np.ndarray:
            return extract(extractor, quantise(images)).astype(np.float64)

        reference = Statistics(features(pixels[order[count:]][:REFERENCES]))
        real = reference.distance(features(pixels[order[:count]]))
        found: dict[str, list[Curve]] = {name: [] for name in chosen}
        for seed in range(given.seeds):
            for name in list(chosen) if seed % 2 == 0 else list(reversed(chosen)):
                make, settings = chosen[name]
                found[name].append(make(task, settings, seed, lambda drawn: reference.distance(features(drawn))))
                report(task, {key: curves for key, curves in found.items() if curves}, real, given.name)


if __name__ == "__main__":
    main()
