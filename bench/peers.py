"""Images per second of safelight, of denoising-diffusion-pytorch and of a plain diffusers loop, in turns.

denoising-diffusion-pytorch (lucidrains, MIT licence) is not part of safelight and not installed with it. Put it into
a folder of its own, without letting pip touch torch, and name that folder:

    pip install --no-deps --target build/peers denoising-diffusion-pytorch ema-pytorch einops pytorch-fid torchvision
    python -m bench.peers --peers build/peers
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from accelerate import Accelerator
from diffusers import DDPMScheduler
from diffusers.optimization import get_scheduler
from diffusers.training_utils import EMAModel
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset
from torch.utils.flop_counter import FlopCounterMode

from bench.measure import HOST, Alternation, Block, Enough, ratios, speeds, write_table
from safelight import start
from safelight.config import Config
from safelight.config.resolve import resolve
from safelight.data.prepare import open_images
from safelight.model.unet import predict
from safelight.training.build import infer_data_settings
from safelight.training.network import build_model

SIDE, IMAGES, BATCH = 32, 1024, 32
LUCIDRAINS, DIFFUSERS = "denoising-diffusion-pytorch", "diffusers loop"
# 1,913,347 and 1,936,099 parameters, all widths multiples of 16, two residual blocks per level.
WIDTHS, LUCIDRAINS_WIDTHS = (48, 64, 64), (32, (1, 2, 3))
LARGEST_DIFFERENCE = 0.03
NEVER = 1 << 30


def make_images(folder: Path) -> None:
    """Soft coloured blots, stored as PNG: all loaders have to decode."""
    draw = np.random.default_rng(0)
    for number in range(IMAGES):
        blot = Image.fromarray(draw.integers(0, 256, (4, 4, 3), dtype=np.uint8))
        blot.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(folder / f"{number:05d}.png")


def configure(folder: Path, batch: int) -> Config:
    """The defaults of 20,000 steps; so early in a run, no checkpoint is due and no picture."""
    settings = {
        "data.source": str(folder),
        "data.image_size": SIDE,
        "data.flip": True,
        "model.widths": WIDTHS,
        "model.layers": 2,
        "model.attention": (8,),
        "model.norm_groups": 16,
        "train.batch_size": batch,
        "sample.every": NEVER,
    }
    return resolve(settings=settings)


class Pictures(Dataset[Tensor]):
    """Decodes, flips and scales one file at a time, as the unconditional example of diffusers does."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*.png"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Tensor:
        with Image.open(self.files[index]) as image:
            pixels = np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR))
        tensor = torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255
        return (tensor.flip(2) if torch.rand(()) < 0.5 else tensor) * 2 - 1


def diffusers_loop(model: nn.Module, folder: Path, batch: int, block: int) -> Block:
    """Ours, written in the manner of diffusers' unconditional example, with its defaults and its EMA."""
    accelerator = Accelerator()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.95, 0.999), weight_decay=1e-6, eps=1e-8)
    noise_scheduler = DDPMScheduler(num_train_timesteps=1000, beta_schedule="linear")
    ema = EMAModel(model.parameters(), decay=0.9999, use_ema_warmup=True, inv_gamma=1.0, power=0.75)
    ema.to(accelerator.device)
    rate = get_scheduler("cosine", optimizer, num_warmup_steps=500, num_training_steps=20_000)
    loader = DataLoader(Pictures(folder), batch_size=batch, shuffle=True)
    model, optimizer, loader, rate = accelerator.prepare(model, optimizer, loader, rate)
    batches = endless(loader)

    def step() -> dict[str, float]:
        clean = next(batches)
        noise = torch.randn_like(clean)
        t = torch.randint(0, 1000, (len(clean),), device=clean.device)
        noisy = noise_scheduler.add_noise(clean, noise, t)
        with accelerator.accumulate(model):
            loss = functional.mse_loss(predict(model, noisy, t, None).float(), noise.float())
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            rate.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            ema.step(model.parameters())
        return {"loss": loss.detach().item(), "lr": rate.get_last_lr()[0]}

    def train() -> None:
        for _ in range(block):
            step()

    return train


def endless(loader: DataLoader[Tensor]) -> Iterator[Tensor]:
    while True:
        yield from loader


def import_lucidrains(folder: Path | None) -> ModuleType | None:
    """From the folder the person named, or from wherever Python finds it; None if it is nowhere."""
    if folder is not None:
        sys.path.append(str(folder.resolve()))  # last: what safelight runs with keeps coming from its own place
    try:
        make_torchvision_importable()
        return import_module("denoising_diffusion_pytorch")
    except ModuleNotFoundError as error:
        print(f"{LUCIDRAINS} is left out: there is no module {error.name}.\n{__doc__}", file=sys.stderr)
        return None


def make_torchvision_importable() -> None:
    """PyPI's torchvision is built for CUDA. Beside a CPU build of torch its compiled part does not load, and it then
    stops at operators that it expects to be there. Nobody here calls them: it is enough that they have a name."""
    try:
        import_module("torchvision")
    except RuntimeError:
        for half_imported in [name for name in sys.modules if name.startswith("torchvision")]:
            del sys.modules[half_imported]
        names = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            names.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(names)
        import_module("torchvision")


_KEPT: list[torch.library.Library] = []  # a library that is collected takes its operators with it


def lucidrains_unet(package: ModuleType) -> nn.Module:
    dim, multiples = LUCIDRAINS_WIDTHS
    return package.Unet(dim=dim, dim_mults=multiples, channels=3, flash_attn=True)


def lucidrains_loop(package: ModuleType, folder: Path, results: Path, batch: int, block: int) -> Block:
    """Its own Trainer with its defaults, asked for a few more steps each time; no pictures and no FID."""
    diffusion = package.GaussianDiffusion(lucidrains_unet(package), image_size=SIDE, timesteps=1000)
    trainer = package.Trainer(
        diffusion,
        str(folder),
        train_batch_size=batch,
        train_num_steps=0,
        save_and_sample_every=NEVER,
        calculate_fid=False,
        results_folder=str(results),
    )

    def train() -> None:
        trainer.train_num_steps += block
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            trainer.train()

    return train


@dataclass(frozen=True, slots=True)
class Network:
    """How large a network is: the same number of parameters need not be the same work."""

    name: str
    parameters: int
    megaflops: float

    @classmethod
    def weigh(cls, name: str, model: nn.Module) -> Network:
        counter = FlopCounterMode(display=False)
        with torch.no_grad(), counter:
            predict(model, torch.zeros(1, 3, SIDE, SIDE), torch.zeros(1, dtype=torch.long), None)
        return cls(name, sum(p.numel() for p in model.parameters()), counter.get_total_flops() / 1e6)


@dataclass(frozen=True, slots=True)
class Course:
    """The same for everybody."""

    folder: Path
    config: Config
    block: int
    rounds: int

    @property
    def images_per_block(self) -> int:
        return self.block * self.config.train.batch_size

    def measure(self, guests: Mapping[str, Block], run: Path, model: nn.Module | None = None) -> dict[str, list[float]]:
        """Seconds of every block, by contender."""
        alternation = Alternation(guests, block=self.block, rounds=self.rounds)
        with contextlib.suppress(Enough):
            start.train(self.config, run=run, model=model, terminal=alternation)
        return alternation.seconds

    def rows(self, seconds: Mapping[str, list[float]], networks: Mapping[str, Network]) -> list[list[str]]:
        return [
            [
                name,
                networks[name].name,
                f"{networks[name].parameters:,}",
                f"{networks[name].megaflops:.0f}",
                speeds(each, self.images_per_block).show(".1f"),
                ratios(seconds[HOST], each).show(".2f"),
            ]
            for name, each in seconds.items()
        ]


def compare(course: Course, package: ModuleType | None, scratch: Path) -> list[list[str]]:
    """All of them with networks of one size; then safelight once more, with the very network of lucidrains."""
    config, batch, block = course.config, course.config.train.batch_size, course.block
    model = build_model(infer_data_settings(config, open_images(config.data)))
    ours = Network.weigh("UNet2DModel", model)
    guests, networks = {DIFFUSERS: diffusers_loop(model, course.folder, batch, block)}, {HOST: ours, DIFFUSERS: ours}
    if package is None:
        return course.rows(course.measure(guests, scratch / "safelight"), networks)
    theirs = Network.weigh("lucidrains' Unet", lucidrains_unet(package))
    difference = abs(theirs.parameters / ours.parameters - 1)
    assert difference < LARGEST_DIFFERENCE, f"the networks differ by {difference:.1%} of their parameters"
    networks[LUCIDRAINS] = theirs
    guests[LUCIDRAINS] = lucidrains_loop(package, course.folder, scratch, batch, block)
    rows = course.rows(course.measure(guests, scratch / "safelight"), networks)
    seconds = course.measure({LUCIDRAINS: guests[LUCIDRAINS]}, scratch / "same_network", lucidrains_unet(package))
    return rows + course.rows(seconds, {HOST: theirs, LUCIDRAINS: theirs})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, help=f"folder that {LUCIDRAINS} was installed into")
    parser.add_argument("--rounds", type=int, default=10, help="blocks of each contender")
    parser.add_argument("--block", type=int, default=10, help="steps per block")
    parser.add_argument("--batch", type=int, default=BATCH, help="images per step")
    options = parser.parse_args()
    package = import_lucidrains(options.peers)
    with tempfile.TemporaryDirectory() as folder:
        scratch, images = Path(folder), Path(folder) / "images"
        images.mkdir()
        make_images(images)
        course = Course(images, configure(images, options.batch), options.block, options.rounds)
        rows = compare(course, package, scratch)
    found = f"{LUCIDRAINS} {metadata.version(LUCIDRAINS)}" if package else f"{LUCIDRAINS} was not installed: left out"
    write_table(
        "peers",
        "Speed beside other trainers",
        ["trainer", "network", "parameters", "MFLOP per image, forward", "images/s", "safelight against it"],
        rows,
        [
            f"{IMAGES:,} colour PNGs of {SIDE} px in a folder, mirrored at random, batch {options.batch}, fp32, EMA "
            f"on; {options.rounds} blocks of {options.block} steps each, in turns; {found}.",
            "Median, with the quartiles over the blocks; the factor is taken within each round.",
            "Each reads the folder in its own way: safelight decodes once and keeps the pixels, the diffusers loop "
            "decodes in the training process (its example's default), lucidrains in one worker process per core.",
            "Pictures, FID and checkpoints are left out of all. safelight keeps its record, its second EMA profile and "
            "its refusal of non-finite updates; lucidrains updates its EMA every 10 steps, the others every step.",
            "The last two rows, where there are any: safelight's trainer around lucidrains' own network.",
        ],
    )


if __name__ == "__main__":
    main()
