"""Does the EMA follow the weights, by how much, and in which precision? Does it move when it should?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from safelight import checks

TINY = 1e-20


@torch.no_grad()
def measure_ema(before: Sequence[Tensor], after: Sequence[Tensor], weights: Sequence[Tensor]) -> dict[str, float]:
    """Solves after = α·before + (1 − α)·weights. `average/decay` is α; `average/left` what neither α nor rounding
    explains, as a share of the way that the EMA moved; `average/moved` that way over the distance to the weights.
    Rounding is the squared length that the dtype may take or add."""
    device = after[0].device
    old, new, live = ([each.detach().to(device).float() for each in group] for group in (before, after, weights))
    steps, aims = torch._foreach_sub(new, old), torch._foreach_sub(live, old)
    inners = torch.stack([torch.dot(step.flatten(), aim.flatten()) for step, aim in zip(steps, aims, strict=True)])
    coarseness = torch.tensor([torch.finfo(each.dtype).eps for each in after], device=device)
    rounded = torch._foreach_mul(new, list(coarseness.unbind()))
    squares = torch.stack([_square(each) for each in (steps, aims, torch._foreach_sub(live, new), rounded)])
    way, towards, apart, rounding = squares.tolist()
    if towards == 0:
        return {}
    share = float(inners.sum()) / max(towards, TINY)
    left = max(0.0, float(_square(torch._foreach_sub(steps, torch._foreach_mul(aims, share)))) - rounding)
    return {
        checks.AVERAGE_DECAY: 1 - share,
        checks.AVERAGE_MOVED: (way / max(towards, TINY)) ** 0.5,
        checks.AVERAGE_LEFT: (left / max(way, TINY)) ** 0.5 if way else 0.0,
        checks.AVERAGE_DISTANCE: apart**0.5,
        checks.AVERAGE_ROUNDING: (rounding / max(way, share * share * towards, TINY)) ** 0.5,
        checks.AVERAGE_COARSE: float(all(torch.equal(new.float(), new.bfloat16().float()) for new in after)),
    }


def _square(values: Sequence[Tensor]) -> Tensor:
    """The squared length of all together, each measured in single precision."""
    return torch.stack(list(torch._foreach_norm(list(values)))).square().sum()
