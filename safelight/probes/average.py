"""Does the average follow the weights, by how much, and in which precision?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

TINY = 1e-20


@torch.no_grad()
def look_at_average(before: Sequence[Tensor], after: Sequence[Tensor], weights: Sequence[Tensor]) -> dict[str, float]:
    """Solves after = α·before + (1 − α)·weights. `average/decay` is α; `average/left` what neither α nor rounding
    explains, as a share of the way that the average went; `average/moved` that way over the distance to the weights."""
    way, towards, inner, apart = 0.0, 0.0, 0.0, 0.0
    pieces: list[tuple[Tensor, Tensor]] = []
    for old, new, live in zip(before, after, weights, strict=True):
        step = (new.float() - old.float()).flatten()
        aim = (live.detach().to(old.device).float() - old.float()).flatten()
        pieces.append((step, aim))
        way, towards = way + float(step.square().sum()), towards + float(aim.square().sum())
        inner += float((step * aim).sum())
        apart += float((live.detach().to(new.device).float() - new.float()).square().sum())
    if towards == 0:
        return {}
    share = inner / max(towards, TINY)
    left = sum(float((step - share * aim).square().sum()) for step, aim in pieces)
    rounding = sum(_rounding(new) for new in after)
    left = max(0.0, left - rounding)
    coarse = all(torch.equal(new.float(), new.bfloat16().float()) for new in after)
    return {
        "average/decay": 1 - share,
        "average/moved": (way / max(towards, TINY)) ** 0.5,
        "average/left": (left / max(way, TINY)) ** 0.5 if way else 0.0,
        "average/distance": apart**0.5,
        "average/rounding": (rounding / max(way, share * share * towards, TINY)) ** 0.5,
        "average/coarse": float(coarse),
    }


def _rounding(values: Tensor) -> float:
    """The squared length that rounding to the numbers of its kind may take or add."""
    return float(values.float().square().sum()) * torch.finfo(values.dtype).eps ** 2
