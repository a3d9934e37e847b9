"""Which samples of a step are bad: each one alone, through the same forward and backward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from safelight.diffusion.micro_batch import MicroBatch
from safelight.processes.group import ProcessGroup

MOST = 0.5  # share of a step's samples; where more are bad alone, it is not the samples


def find_bad_samples(
    inputs: Sequence[MicroBatch], is_finite: Callable[[MicroBatch], bool], group: ProcessGroup
) -> list[int]:
    """Dataset indices of the samples whose own loss or gradient is not finite; none where it is the weights that are
    bad, or where samples are bad only together."""
    rows = [row for micro in inputs for row in micro.rows()]
    found = group.all_gather_object([int(row.ids[0]) for row in rows if not is_finite(row)])
    bad = [sample for each in found for sample in each]
    return sorted(set(bad)) if len(bad) <= MOST * len(rows) * group.size else []
