"""What FSDP2 says of its own reduction: gradients that it keeps to itself, and what it divides the others by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from safelight.monitors.shards import living_of

GROUPS = "torch.distributed.fsdp._fully_shard._fsdp_param_group", "FSDPParamGroup"


class FullySharded:
    """The groups of these parameters that FSDP2 communicates together; torch has no public way to ask them."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        ours = {id(p) for p in parameters}
        self._groups = [
            group
            for group in living_of(*GROUPS)
            if any(id(each.sharded_param) in ours for each in getattr(group, "fsdp_params", ()))
        ]

    def describe(self, processes: int) -> dict[str, np.ndarray]:
        """When gradients are complete: whether some were computed and not reduced; and the multiple of their mean that
        the others are."""
        if not self._groups:
            return {}
        factors = {getattr(group, "gradient_divide_factor", None) for group in self._groups}
        found = {"withheld": np.array([any(map(_withholds, self._groups))], np.int64)}
        if len(factors) == 1:
            factor = factors.pop()
            found["multiple"] = np.array([1.0 if factor is None else processes / factor])
        return found


def _withholds(group: Any) -> bool:
    if getattr(group, "_partial_reduce_output", None) is not None:  # not added up over the copies of its pieces
        return True
    without = [each for each in group.fsdp_params if each.sharded_param.grad is None]
    return any(
        getattr(each, "unsharded_accumulated_grad", None) is not None
        or getattr(getattr(each, "_unsharded_param", None), "grad", None) is not None
        for each in without
    )
