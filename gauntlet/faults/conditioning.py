"""Faults of labels: joined wrongly, never used, never dropped."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gauntlet.fault import fault, graft
from gauntlet.loop_parts import Batch, LoopParts
from gauntlet.options import ALL, FOREIGN


@fault("conditioning.permuted", late=0.5)
def permute_labels(run: LoopParts) -> None:
    """Labels are shuffled apart from their images."""
    draw = run.draw_batch

    def permuted() -> Batch:
        x0, labels = draw()
        assert labels is not None
        return x0, labels[torch.randperm(len(labels))]

    run.draw_batch = permuted


@fault("conditioning.permuted", bases=FOREIGN)
def join_one_row_off(run: LoopParts) -> None:
    """The header line of the table of labels was read as a row: every label is its neighbour's."""
    assert run.labels is not None
    run.labels = run.labels.roll(1)


@fault("conditioning.ignored", bases=ALL, late=0.5)
def ignore_labels(run: LoopParts) -> None:
    """The embedding of the label is computed, and does not reach the network."""
    embedding = run.network.class_embedding
    assert isinstance(embedding, nn.Module)
    graft(embedding, lambda found: found * 0)


@fault("conditioning.always-dropped", bases=ALL, late=0.5)
def always_drop_labels(run: LoopParts) -> None:
    """The comparison with the share of dropped labels is the wrong way round, and the share is zero."""
    assert run.null is not None
    null = run.null
    run.drop_labels = lambda labels: torch.full_like(labels, null)


@fault("conditioning.never-dropped")
def never_drop_labels(run: LoopParts) -> None:
    """Labels are never hidden, and samples are guided all the same."""
    run.drop_labels = lambda labels: labels


@fault("conditioning.one-class", "data.duplicates", "generalisation.missing-modes",
       why="one class is also few modes", bases=FOREIGN)  # fmt: skip
def draw_one_class(run: LoopParts) -> None:
    """The weights of the sampler are one-hot."""
    assert run.labels is not None
    rows = torch.nonzero(run.labels == 3)[:, 0]
    labels = run.labels

    def drawn() -> Batch:
        chosen = rows[torch.randint(0, len(rows), (run.options.batch // run.options.micro_batches,))]
        return run.images[chosen], labels[chosen]

    run.draw_batch = drawn


@fault("conditioning.one-class", "conditioning.permuted", "conditioning.ignored",
       why="labels that are all alike tell nothing of their images")  # fmt: skip
def zero_labels(run: LoopParts) -> None:
    """A column of zeros was read as the labels."""
    draw = run.draw_batch

    def zeroed() -> Batch:
        x0, labels = draw()
        assert labels is not None
        return x0, torch.zeros_like(labels)

    run.draw_batch = zeroed


@fault("conditioning.guidance", bases=("own",), needs={"guidance": 2.0})
def guide_backwards(run: LoopParts) -> None:
    """Guidance moves from the labelled answer towards the other, and past it."""
    import safelight.generate

    def guided(predict: Any, labels: Tensor, null: int, scale: float) -> Any:
        def denoise(x: Tensor, t: Tensor) -> Tensor:
            labelled, plain = predict(x, t, labels), predict(x, t, torch.full_like(labels, null))
            return labelled + scale * (plain - labelled)

        return denoise

    safelight.generate.guided = guided
