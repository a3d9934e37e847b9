"""What share of the machine's measured peak a U-Net step reaches: its GFLOP/s against those of the fastest operation.

python -m bench.peak                     # a few minutes, on a quiet machine
python -m bench.peak --rounds 2          # to try it
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from bench.measure import spread, turns, write_table
from safelight.config.resolve import resolve
from safelight.model.unet import predict
from safelight.training.network import build_model
from safelight.training.runtime import has_native_bf16

SIDES = (512, 1024, 2048)  # of the matrices; the fastest of them is the peak
LEAST_SECONDS = 0.2  # of a measurement
CASES: dict[str, dict[str, Any]] = {
    "8 px, digits": {"data.image_size": 8, "model.widths": (32, 64), "model.attention": (), "train.batch_size": 128},
    "16 px": {"data.image_size": 16, "model.widths": (32, 64, 96), "train.batch_size": 64},
    "32 px": {"data.image_size": 32, "train.batch_size": 16},
    "64 px": {"data.image_size": 64, "model.widths": (64, 96, 128, 192), "train.batch_size": 4},
}


@dataclass(frozen=True, slots=True)
class Work:
    """Something to be timed, and the floating-point operations that it takes."""

    run: Callable[[], object]
    flops: float


def product(side: int, dtype: torch.dtype) -> Work:
    one, other = (torch.randn(side, side).to(dtype) for _ in range(2))
    return Work(lambda: one @ other, 2 * side**3)


def convolution(size: int, dtype: torch.dtype) -> Work:
    """Which another library computes than products, and may be faster on this machine."""
    channels, side, batch = 256, 32, 8
    x = torch.randn(batch, channels, side, side).to(dtype)
    weight = torch.randn(channels, channels, size, size).to(dtype)
    flops = 2 * batch * side**2 * channels**2 * size**2
    return Work(lambda: nn.functional.conv2d(x, weight, padding=size // 2), flops)


def step(settings: dict[str, Any], half: bool) -> tuple[Work, float]:
    """Forward, backward and AdamW, as they are counted by torch; and millions of parameters."""
    config = resolve(settings=settings | {"data.channels": 3, "data.classes": 0})
    model, size, side = build_model(config).train(), config.train.batch_size, config.data.image_size
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    images, times = torch.randn(size, 3, side, side), torch.randint(0, 1000, (size,))

    def run() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            predicted = predict(model, images, times, None)
        nn.functional.mse_loss(predicted.float(), images).backward()
        optimizer.step()
        optimizer.zero_grad()

    counter = FlopCounterMode(display=False)
    with counter:
        run()
    return Work(run, counter.get_total_flops()), sum(each.numel() for each in model.parameters()) / 1e6


def rate(work: Work) -> float:
    """GFLOP/s. Of one thread by its own processor time, which others on the machine do not stretch."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    count, begun = 0, clock()
    while (seconds := clock() - begun) < LEAST_SECONDS or not count:
        work.run()
        count += 1
    return count * work.flops / seconds / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--threads", type=int, help="without it, torch's choice")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    kinds = {"fp32": torch.float32}
    if has_native_bf16(torch.device("cpu")):
        kinds["bf16"] = torch.bfloat16
    works: dict[tuple[str, str], Work] = {}
    sizes: dict[str, float] = {}
    for kind, dtype in kinds.items():
        works |= {(f"product {side}", kind): product(side, dtype) for side in SIDES}
        works |= {(f"convolution {size}", kind): convolution(size, dtype) for size in (1, 3)}
        for name, settings in CASES.items():
            works[name, kind], sizes[name] = step(settings, kind != "fp32")
    for work in works.values():
        work.run()
    found: dict[tuple[str, str], list[float]] = {key: [] for key in works}
    names = {" ".join(key): key for key in works}
    for name in turns(list(names), given.rounds):
        found[names[name]].append(rate(works[names[name]]))
    peaks = {
        kind: max(spread(rates).median for (name, of), rates in found.items() if of == kind and name not in CASES)
        for kind in kinds
    }
    rows = []
    for name in CASES:
        for kind, peak in peaks.items():
            speed = spread(found[name, kind])
            seconds = works[name, kind].flops / speed.median / 1e9
            rows.append((name, f"{sizes[name]:.2f} M", kind, f"{works[name, kind].flops / 1e9:.2f}",
                         f"{1000 * seconds:.1f} ms", speed.show(".0f"), f"{speed.median / peak:.0%}"))  # fmt: skip
    write_table(
        "peak",
        "What share of the machine's peak a U-Net step reaches",
        ("step", "parameters", "precision", "GFLOP", "time", "GFLOP/s, median (quartiles)", "share of the peak"),
        rows,
        (
            "Peak: the fastest of products of square matrices of "
            f"{', '.join(map(str, SIDES))} numbers a side and of convolutions of 256 channels: "
            + ", ".join(f"{peak:.0f} GFLOP/s in {kind}" for kind, peak in peaks.items())
            + f". {given.rounds} rounds in turns.",
            "Operations are those that torch counts: convolutions, products and attention, forward and backward. "
            "Norms, activations and the optimizer take time and count for nothing, which is most of what is missing.",
        ),
    )


if __name__ == "__main__":
    main()
