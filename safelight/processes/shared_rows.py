"""Work between steps that processes share: each does some rows of it, and all have the result."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from safelight.processes.group import ProcessGroup


def share_rows(
    group: ProcessGroup, count: int, act: Callable[[int, int], Tensor], *, in_step: bool = False, unit: int = 1
) -> Tensor:
    """`act` gives rows `start` to `stop` of so many, on the host or the device; all of them, on the host, on every
    process. Where one process fails, all do. `in_step`: every pass takes all processes, so that each does as many rows;
    those too many are dropped. `unit`: rows that stay together."""
    if group.size == 1:
        return act(0, count)
    share = -(-count // (group.size * unit)) * unit
    start, stop = group.rank * share, (group.rank + 1) * share
    if in_step:
        return group.all_gather_host(act(start, stop)).flatten(0, 1)[:count]
    start, stop = min(count, start), min(count, stop)
    mine: Tensor | None = None
    failed = None
    try:
        mine = act(start, stop).cpu() if stop > start else None
    except Exception as error:  # whatever it is: the others must not wait for rows that will not come
        failed = f"{type(error).__name__}: {error}"
    shares = group.all_gather_object([failed, None if mine is None else list(mine.shape[1:])])
    for rank, (reason, _) in enumerate(shares):
        if reason is not None:
            raise RuntimeError(f"process {rank}: {reason}")
    padded = torch.zeros(share, *shares[0][1])
    if mine is not None:
        padded[: len(mine)] = mine
    return group.all_gather_host(padded).flatten(0, 1)[:count]
