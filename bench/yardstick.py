"""What the closed-form denoisers of a data set cost, and whether networks lie where they say.

    python -m bench.yardstick      # 15 minutes on one core

Times are those of the processor in one thread, as a run spends them once, at its first checkpoint. Images are
generated. A set of a million is a file of its full size in which those images are written that a run reads; they are
put out of memory before they are read, so their reading is counted, and the time of the clock stands beside that of the
processor.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

import safelight
from bench.measure import write_table
from safelight.config.tree import Diffusion
from safelight.data.batches import Augmentation, Batches
from safelight.data.images import Images
from safelight.diffusion.objective import Objective
from safelight.diffusion.schedule import make_process
from safelight.record.history import open_history
from safelight.run import RunFolder
from safelight.training.fixed_set import MAX_FITTED_IMAGES, FirstRows, FixedSet
from safelight.yardstick.denoisers import AT_ONCE, ClosedFormDenoisers
from safelight.yardstick.fixed_samples import SIZE, draw_samples

SHAPES = ((8, 1), (32, 3), (64, 3))  # side, channels
COUNTS = {"1 k": 1_000, "60 k": 60_000, "1 M": 1_000_000}
SEED = 7
SMALL: dict[str, Any] = {
    "data.image_size": 8,
    "model.widths": [32, 64],
    "model.attention": [],
    "model.layers": 1,
    "model.norm_groups": 8,
    "model.conditional": False,
    "train.threads": 1,
    "train.batch_size": 128,
    "evaluate.every": 0,
    "optimizer.lr": 2e-3,
}
FEW: dict[str, Any] = {"train.batch_size": 64, "data.held_out": 0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demo-steps", type=int, help="stop the demo early; unset: all of its steps")
    parser.add_argument("--steps", type=int, default=1500, help="of the networks on 64 and on 60,000 images")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        rows = [measure(folder, name, side, channels) for side, channels in SHAPES for name in COUNTS]
        notes = [*demo(folder, given.demo_steps), *memorised(folder, given.steps), *generalised(folder, given.steps)]
    columns = [
        "images",
        "size",
        "images read",
        "filter",
        "losses",
        "both",
        "both, by the clock",
        "filter from the cache",
    ]
    write_table("yardstick", "What the yardstick costs", columns, rows, notes)


@dataclass
class Clock:
    """Seconds of the processor and of the clock."""

    processor: float = 0.0
    real: float = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        began = time.process_time(), time.perf_counter()
        yield
        self.processor += time.process_time() - began[0]
        self.real += time.perf_counter() - began[1]


def measure(folder: Path, name: str, side: int, channels: int) -> list[object]:
    count = COUNTS[name]
    path = folder / f"{side}-{count}.bin"
    batches, read = generated(path, count, side, channels), min(MAX_FITTED_IMAGES, count)
    settings = Diffusion()
    objective = Objective(settings, make_process(settings), torch.device("cpu"))
    samples = draw_samples(SEED, objective, batches.rows(0, 0, SIZE).images)
    put_out_of_memory(path)
    kept = folder / "filters" / f"{side}-{count}.safetensors"
    fit, losses, again = Clock(), Clock(), Clock()
    denoisers = ClosedFormDenoisers(FirstRows(batches, read), kept)
    with fit.running():
        full = denoisers.linear.is_full
    with losses.running():
        samples.compare(denoisers)
    with again.running():
        ClosedFormDenoisers(FirstRows(batches, read), kept).linear  # noqa: B018
    path.unlink()
    size = f"{side} px, {'colour' if channels == 3 else 'grey'}{'' if full else ' (cosines)'}"
    both = fit.processor + losses.processor
    clock = fit.real + losses.real
    return [name, size, f"{read:,}", *(f"{each:.2f} s" for each in (fit.processor, losses.processor, both, clock)),
            f"{again.real:.2f} s"]  # fmt: skip


def generated(path: Path, count: int, side: int, channels: int) -> Batches:
    """Batches of a set on disk, of which only those images are written that the yardstick reads."""
    pixels = np.memmap(path, np.uint8, "w+", shape=(count, side, side, channels))
    read = min(MAX_FITTED_IMAGES, count)
    batches = Batches(Images(pixels, None, (), ""), seed=SEED, batch_size=read, views=Augmentation(side=side))
    ids, draw = np.sort(batches.ids(0)), np.random.default_rng(0)
    for start in range(0, read, AT_ONCE):
        chosen = ids[start : start + AT_ONCE]
        waves = draw.uniform(0, 255, (len(chosen), 4, 4, channels)).repeat(side // 4, 1).repeat(side // 4, 2)
        pixels[chosen] = waves.clip(0, 255).astype(np.uint8)
    pixels.flush()
    return batches


def put_out_of_memory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


@dataclass
class Spent:
    """What a run spends on the yardstick: the denoisers once, skill at every checkpoint."""

    clock: Clock = field(default_factory=Clock)

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            with self.clock.running():
                return function(*arguments, **named)

        return run


def demo(folder: Path, steps: int | None) -> list[str]:
    """The share of the demo's training time."""
    spent, whole = Spent(), Clock()
    settings: dict[str, Any] = {"train.threads": 1} | ({} if steps is None else {"train.steps": steps})
    with mock.patch.object(FixedSet, "skills", spent.counted(FixedSet.skills)), whole.running():
        run = safelight.train("digits", run=folder / "demo", settings=settings)
    share = spent.clock.processor / whole.processor
    return [
        f"The demo ({run.step:,} steps): {spent.clock.processor:.2f} s of {whole.processor:.0f} s of the processor, "
        f"{share:.2%} (wanted: at most 2 %)."
    ]


def memorised(folder: Path, steps: int) -> list[str]:
    """A network that sees 64 images again and again comes to the floor, and not below it."""
    images = garments()[:64]
    run = safelight.train(images, run=folder / "few", settings=SMALL | FEW | {"train.steps": 3 * steps})
    found = latest(run.path, "skill/raw", "skill/exact", "skill/floor")
    return [
        f"64 garments, {run.step:,} steps: skill {found['skill/raw']:.2f}, that of the floor "
        f"{found['skill/exact']:.2f}; {found['skill/floor']:.0%} of the way from the linear filter to it."
    ]


def generalised(folder: Path, steps: int) -> list[str]:
    """A network that is trained on 60,000 images beats the exact denoiser of these on others, and is above the floor on
    its own."""
    settings = SMALL | {"train.steps": steps, "data.held_out": 0.02}
    run = safelight.train("fashion-mnist", run=folder / "many", settings=settings)
    found = latest(run.path, "skill/raw", "skill/exact", "skill/held", "skill/held_exact")
    with mock.patch("safelight.training.fixed_set.MAX_FITTED_IMAGES", 10**9):
        whole = of_all_images(run)
    return [
        f"Fashion-MNIST, {run.step:,} steps: on training images skill {found['skill/raw']:.2f}, the floor of "
        f"{MAX_FITTED_IMAGES:,} of them {found['skill/exact']:.2f} and of all {whole['skill/exact']:.2f}. On held-out "
        f"images {found['skill/held']:.2f}, the exact denoiser of {MAX_FITTED_IMAGES:,} training images "
        f"{found['skill/held_exact']:.2f}, of all {whole['skill/held_exact']:.2f}."
    ]


def of_all_images(run: safelight.Run) -> dict[str, float]:
    """By signal, the skill of the exact denoiser that knows all training images."""
    from safelight.data.prepare import open_images
    from safelight.training.build import build, infer_data_settings

    images = open_images(run.config.data, lambda *_: None, lambda _: None)
    setup = build(infer_data_settings(run.config, images), images, lambda _: None)
    assert setup.held_out_set is not None
    losses = torch.ones(len(setup.fixed_set))
    found = setup.fixed_set.skills(losses, losses)
    return found | setup.held_out_set.skills(losses, losses)


def garments() -> np.ndarray:
    """Of Fashion-MNIST, at 8 px."""
    from safelight.config.resolve import resolve
    from safelight.data.prepare import open_images

    config = resolve(settings={"data.source": "fashion-mnist", "data.image_size": 8})
    return open_images(config.data, lambda *_: None, lambda _: None).take(np.arange(256))


def latest(run: Path, *signals: str) -> dict[str, float]:
    with open_history(RunFolder(run).record) as history:
        return {name: (history.last(name) or (0, math.nan))[1] for name in signals}


if __name__ == "__main__":
    main()
