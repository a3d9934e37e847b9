"""Faults of the range of numbers that images have."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gauntlet.fault import fault
from gauntlet.loop_parts import Batch, LoopParts
from gauntlet.options import FOREIGN

PIXELS = ("plain", "own")


def rescale(run: LoopParts, change: Callable[[Tensor], Tensor]) -> None:
    """In the set itself; in the trainer, whose set is bytes, where they become numbers."""
    if run.base != "own":
        run.images = change(run.images)
        return
    draw = run.draw_batch

    def rescaled() -> Batch:
        x0, labels = draw()
        return change(x0), labels

    run.draw_batch = rescaled


@fault("scale.range-0-1", bases=PIXELS, shown=("loss and t",))
def leave_in_0_1(run: LoopParts) -> None:
    """`ToTensor()` without `2 * x - 1`."""
    rescale(run, lambda x: (x + 1) / 2)


@fault("scale.range-0-255", bases=PIXELS)
def leave_in_0_255(run: LoopParts) -> None:
    """Bytes became floats, and nothing else."""
    rescale(run, lambda x: (x + 1) * 127.5)


@fault("scale.integer", bases=("plain",))
def leave_as_bytes(run: LoopParts) -> None:
    """Images stay uint8; diffusers casts its coefficients to their type."""
    run.images = ((run.images + 1) * 127.5).to(torch.uint8)
    run.draw_noise = lambda x0: torch.randn(x0.shape)


@fault(
    "scale.wrong-std",
    "scale.outside",
    why="what is not an image has no range that must be kept, only a size",
    bases=("mixture",),
    doses=(5.0, 20.0, 0.05),
)
def forget_scaling_factor(run: LoopParts, factor: float) -> None:
    """Latents go in without the factor that makes their deviation one."""
    rescale(run, lambda x: x * factor)


@fault("scale.outside", "scale.wrong-std", why="mean and deviation are wrong as well as the range", bases=PIXELS)
def normalise_like_a_classifier(run: LoopParts) -> None:
    """The mean and deviation of ImageNet, copied from a classifier."""
    rescale(run, lambda x: ((x + 1) / 2 - 0.449) / 0.226)


@fault("scale.outside", "scale.wrong-std", why="mean and deviation are wrong as well as the range", bases=PIXELS)
def rescale_twice(run: LoopParts) -> None:
    """`2 * x - 1` stands in the dataset and in the loop."""
    rescale(run, lambda x: 2 * x - 1)


@fault("data.blank", "scale.outside", "scale.wrong-std", "data.duplicates",
       why="after a second division by 255 all images are alike and black", bases=PIXELS)  # fmt: skip
def divide_twice(run: LoopParts) -> None:
    """`ToTensor()` divides by 255, and so does the loop."""
    rescale(run, lambda x: (x + 1) / 255 - 1)


KICK = {"clip": None, "optimizer": "sgd", "lr": 0.05, "prediction": "v_prediction"}  # so that an outlier can kick


@fault("scale.wrong-std", "data.shifted", "scale.outside", "clipping.outlier-batches",
       why="one batch that is out of range, and that nothing clips", bases=FOREIGN, begin=0.6, once=True,
       doses=(50.0,), needs=KICK)  # fmt: skip
def burst_batch(run: LoopParts, factor: float) -> None:
    """One batch, decoded wrongly, is fifty times too large."""
    draw = run.draw_batch

    def burst() -> Batch:
        x0, labels = draw()
        return x0 * factor, labels

    run.draw_batch = burst


@fault("clipping.outlier-batches", "data.shifted", "scale.outside", why="the batches that kick are out of range",
       bases=FOREIGN, needs=KICK)  # fmt: skip
def meet_outliers_unclipped(run: LoopParts) -> None:
    """Without clipping, every twentieth batch has one image that is a hundred times too large."""
    draw = run.draw_batch

    def rare() -> Batch:
        x0, labels = draw()
        if run.step % 20 == 15:
            x0 = x0.clone()
            x0[:1] *= 100
        return x0, labels

    run.draw_batch = rare
