"""Host memory that a resume takes on each process, against the size of the checkpoint."""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
import torch

from bench.divided import launch, megabytes, peak
from bench.measure import write_table
from bench.scale import CASES
from safelight.checkpoints.loading import load_latest
from safelight.checkpoints.writer import write
from safelight.config.resolve import resolve
from safelight.data.prepare import open_images
from safelight.processes.group import ProcessGroup
from safelight.training.build import build, infer_data_settings

ALLOWED_FIRST, ALLOWED_OTHERS = 1.3, 0.3


def resume(folder: Path, group: ProcessGroup) -> dict[str, Any]:
    """In bytes, beyond what this process trains with afterwards."""
    config = resolve(preset="digits", settings=CASES["wide"] | {"train.threads": 1})
    images = open_images(config.data)
    state = build(infer_data_settings(config, images), images, lambda _: None, group=group).state
    if not any(folder.iterdir()) and group.is_main:
        for parameter in state.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        state.optimizer.step()
        state.counters.step = 1
        write(folder, state.snapshot())
        state.host_copy = type(state.host_copy)()
        state.optimizer.state.clear()
    state.optimizer.zero_grad(set_to_none=True)
    group.broadcast(lambda: None)
    clean()
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before = psutil.Process().memory_info().rss
    loaded = load_latest(group, folder, None, print)
    assert loaded is not None
    state.restore(loaded)
    highest = peak()
    del loaded
    clean()
    after = psutil.Process().memory_info().rss
    size = sum(path.stat().st_size for path in next(folder.glob("step_*")).iterdir())
    return {"before": highest - before, "after": highest - after, "size": size}


def clean() -> None:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    open_images(resolve(preset="digits", settings=CASES["wide"]).data)
    for name in ("accelerate", "diffusers.models.unets.unet_2d"):
        importlib.import_module(name)  # before the fork, or every process would count it
    with tempfile.TemporaryDirectory() as folder:
        found = launch(options.processes, lambda group: resume(Path(folder), group))
    rows = [
        [str(rank), megabytes(each["before"]), megabytes(each["after"]), f"{each['after'] / each['size']:.2f}"]
        for rank, each in enumerate(found)
    ]
    notes = [
        f"A checkpoint of {megabytes(found[0]['size'])} MB; MB of resident memory at the peak of loading and restoring "
        "it. Beyond what is trained with: on CPUs the moments of the optimizer are a third of a checkpoint, and stay.",
        f"Wanted: at most {ALLOWED_FIRST} of the checkpoint on the first process, {ALLOWED_OTHERS} on the others.",
    ]
    heads = ["process", "above before", "beyond what is trained with", "of the checkpoint"]
    write_table("resuming", "Memory of a resume", heads, rows, notes)
    limits = [ALLOWED_FIRST, *[ALLOWED_OTHERS] * (options.processes - 1)]
    return 0 if all(each["after"] <= limit * each["size"]
                    for each, limit in zip(found, limits, strict=True)) else 1  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
