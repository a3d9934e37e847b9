"""Which samples of a step are bad: each one by itself, through the same forward and backward pass."""

from __future__ import annotations

from collections.abc import Sequence

from safelight.diffusion.inputs import Inputs
from safelight.training.step import Stepper

MOST = 0.5  # share of a step's samples; where more are bad alone, it is not the samples


def find_bad_samples(stepper: Stepper, inputs: Sequence[Inputs], step: int) -> list[int]:
    """Dataset indices of the samples whose own loss or gradient is not finite; none where it is the weights that are
    sick, or where samples are bad only together. Leaves no gradient behind."""
    rows = [row for micro in inputs for row in _rows(micro)]
    told = stepper.group.all_gather_object([int(row.ids[0]) for row in rows if not _is_sound(stepper, row, step)])
    bad = [sample for each in told for sample in each]
    return sorted(set(bad)) if len(bad) <= MOST * len(rows) * stepper.group.size else []


def _rows(micro: Inputs) -> list[Inputs]:
    return [
        Inputs(
            micro.start + i,
            micro.ids[i : i + 1],
            micro.x0[i : i + 1],
            micro.noise[i : i + 1],
            micro.t[i : i + 1],
            None if micro.labels is None else micro.labels[i : i + 1],
        )
        for i in range(len(micro.ids))
    ]


def _is_sound(stepper: Stepper, row: Inputs, step: int) -> bool:
    optimizer, inspection = stepper.state.optimizer, stepper.inspection
    optimizer.zero_grad(set_to_none=True)
    stepper.inspection = None
    try:
        if not stepper.accumulate(row, step).isfinite().all():
            return False
        gradients = [p.grad for p in stepper.state.model.parameters() if p.grad is not None]
        return all(bool(gradient.isfinite().all()) for gradient in gradients)
    finally:
        stepper.inspection = inspection
        optimizer.zero_grad(set_to_none=True)
