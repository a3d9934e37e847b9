"""Faults of the images: what they hold, and the order they come in."""

from __future__ import annotations

import time

import numpy as np
import torch

from gauntlet.fault import fault
from gauntlet.loop import Loop
from gauntlet.loop_parts import Batch, LoopParts
from gauntlet.options import FOREIGN


@fault("data.nonfinite", bases=FOREIGN, doses=(float("nan"), float("inf")))
def poison_pixels(run: LoopParts, value: float) -> None:
    """One image in a hundred has a number that is none."""
    run.images.view(len(run.images), -1)[::100, 0] = value


@fault("data.nonfinite", "loss.nonfinite", why="the trainer's images are bytes; the number appears in the batch only")
def poison_late_batch(run: LoopParts) -> None:
    """An augmentation divides zero by zero from some step on, in one image of each batch."""
    draw = run.draw_batch

    def poisoned() -> Batch:
        x0, labels = draw()
        x0 = x0.clone()
        if run.step >= run.options.steps // 2:
            x0[0] = x0[0] * float("nan")
        return x0, labels

    run.draw_batch = poisoned


@fault("data.duplicates", bases=FOREIGN, doses=(0.5, 0.9))
def repeat_one_image(run: LoopParts, share: float) -> None:
    """A share of the set is one and the same image."""
    run.images[: int(len(run.images) * share)] = run.images[0].clone()


@fault("data.blank", bases=("plain",))
def blank_images(run: LoopParts) -> None:
    """A third of the files could not be read and are black."""
    run.images[::3] = -1.0


@fault("data.blank", "data.duplicates", why="blank images are also alike", bases=("plain",))
def zero_images(run: LoopParts) -> None:
    """Half of the set was allocated and never filled."""
    run.images[len(run.images) // 2 :] = 0.0


@fault("data.not-shuffled", bases=FOREIGN)
def sort_by_class(run: LoopParts) -> None:
    """The set is sorted by class, and the loader does not shuffle."""
    assert isinstance(run, Loop)
    order = torch.argsort(run.classes, stable=True)
    run.images, run.classes = run.images[order], run.classes[order]
    run.labels = None if run.labels is None else run.labels[order]
    run.data_order.shuffled = False
    run.data_order.restart()


@fault("data.not-shuffled", bases=("own",))
def serve_in_order(run: LoopParts) -> None:
    """Images come by class, one class after the other."""
    from gauntlet.bases.own import Own

    assert isinstance(run, Own)
    batches, images = run.parts.loader.batches, run.parts.images
    assert images.labels is not None
    order = images.labels.argsort(kind="stable")
    size = run.options.batch

    def drawn(step: int, start: int, stop: int) -> np.ndarray:
        return order[[(step * size + row) % len(order) for row in range(start, stop)]]

    batches._draw = drawn  # pyright: ignore[reportAttributeAccessIssue]


@fault("data.same-batch", bases=("plain", "own"), late=0.5)
def repeat_first_batch(run: LoopParts) -> None:
    """`batch = next(iter(loader))` was moved out of the loop."""
    draw, kept = run.draw_batch, []

    def same() -> Batch:
        if not kept:
            kept.append(draw())
        return kept[0]

    run.draw_batch = same


@fault("data.shifted", begin=0.5)
def invert_images(run: LoopParts) -> None:
    """From some step on the images are negatives of what they were, or far smaller."""
    draw = run.draw_batch

    def inverted() -> Batch:
        x0, labels = draw()
        return -x0 if run.base != "mixture" else x0 * 0.3, labels

    run.draw_batch = inverted


@fault(
    "system.starved-loader",
    harms=False,
)
def read_slowly(run: LoopParts) -> None:
    """Each batch is decoded when it is needed, and that takes longer than the step."""
    draw = run.draw_batch

    def slow() -> Batch:
        time.sleep(0.06)
        return draw()

    run.draw_batch = slow


@fault(
    "generalisation.copies",
    "generalisation.overfitting",
    why="a set this small is copied and overfitted at once",
    bases=FOREIGN,
)
def train_on_eight(run: LoopParts) -> None:
    """A slice for debugging was left in: eight images are trained on, of the whole set that is declared."""
    draw_from = run.images[:8], None if run.labels is None else run.labels[:8]

    def few() -> Batch:
        rows = torch.randint(0, 8, (run.options.batch // run.options.micro_batches,))
        return draw_from[0][rows], None if draw_from[1] is None else draw_from[1][rows]

    run.draw_batch = few


@fault("generalisation.missing-modes", "conditioning.one-class", "data.shifted",
       why="what is drawn is not what is declared, by class", bases=FOREIGN)  # fmt: skip
def lose_classes(run: LoopParts) -> None:
    """The loader never gives half of the classes."""
    assert isinstance(run, Loop)
    kept = torch.nonzero(run.classes < int(run.classes.max() + 1) // 2)[:, 0]

    def some() -> Batch:
        rows = kept[run.data_order.draw(len(kept))]
        return run.images[rows], None if run.labels is None else run.labels[rows]

    run.draw_batch = some


@fault("data.held-out-overlap", bases=("own",), harms=False)
def train_on_held_out(run: LoopParts) -> None:
    """The split is made, and the loader draws from all images."""
    from gauntlet.bases.own import Own
    from safelight.data.batches import Batches

    assert isinstance(run, Own)
    config = run.parts.config
    run.parts.loader.batches = Batches(run.parts.images, seed=run.seed, batch_size=config.train.batch_size)
