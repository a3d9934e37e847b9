"""Does the EMA follow the weights, by how much, and in which precision? Does it move when it should?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from safelight import checks

TINY = 1e-20


@torch.no_grad()
def compare_with_weights(ema: Sequence[Tensor], weights: Sequence[Tensor]) -> dict[str, float]:
    """Whether this is an EMA of these weights at all. By the matrices: norms and biases are alike in any two networks
    of one kind. An EMA of zeros, which a bias correction divides later, has no direction yet."""
    pairs = [(one, other) for one, other in zip(ema, weights, strict=True) if one.dim() > 1]
    shared = sum(one.data_ptr() == other.data_ptr() for one, other in zip(ema, weights, strict=True))
    readings: dict[str, float] = {checks.AVERAGE_SHARED: shared / max(1, len(weights))}
    mine, theirs = (
        ([each.detach().float().cpu() for each in group] for group in zip(*pairs, strict=True)) if pairs else ([], [])
    )
    lengths = float(_square(mine)) * float(_square(theirs)) if pairs else 0.0
    if lengths > 0:
        inner = sum(float((one * other).sum()) for one, other in zip(mine, theirs, strict=True))
        readings[checks.AVERAGE_COSINE] = inner / lengths**0.5
    return readings


@torch.no_grad()
def measure_ema(before: Sequence[Tensor], after: Sequence[Tensor], weights: Sequence[Tensor]) -> dict[str, float]:
    """Solves after = α·before + (1 − α)·weights. `average/decay` is α; `average/left` what neither α nor rounding
    explains, as a share of the way that the EMA moved; `average/moved` that way over the distance to the weights.
    Rounding is the squared length that the dtype may take or add. Tensors that are copied as they are, such as those of
    batch norm in some EMAs, have no decay and are left out, unless all are."""
    copied = [torch.equal(new, live.detach().to(new)) for new, live in zip(after, weights, strict=True)]
    if any(copied) and not all(copied):
        groups = (
            [each for each, is_copy in zip(group, copied, strict=True) if not is_copy]
            for group in (before, after, weights)
        )
        before, after, weights = groups
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
