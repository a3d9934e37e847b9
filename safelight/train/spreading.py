"""A checkpoint from the process that read it to all others: they need not see the disk it lies on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from safelight.train.checkpoint import Loaded
from safelight.train.crew import Crew


def load_once(crew: Crew, read: Callable[[], Loaded | None]) -> Loaded | None:
    """Read by the first process, and the same bytes on every one."""
    if crew.count == 1:
        return read()
    loaded: list[Loaded | None] = []

    def describe() -> dict[str, Any] | None:
        loaded.append(found := read())
        return None if found is None else _describe(found)

    head = crew.tell(describe)
    if head is None:
        return None
    mine = loaded[0] if loaded else None
    tensors = {
        stem: {name: _spread(crew, mine, stem, name, kind, shape) for name, kind, shape in rows}
        for stem, rows in head["tensors"].items()
    }
    return Loaded(head["step"], Path(head["path"]), tensors, head["state"], head["manifest"])


def _describe(loaded: Loaded) -> dict[str, Any]:
    rows = {
        stem: [[name, str(value.dtype).removeprefix("torch."), list(value.shape)] for name, value in group.items()]
        for stem, group in loaded.tensors.items()
    }
    whole = {"step": loaded.step, "path": str(loaded.path), "state": loaded.state, "manifest": loaded.manifest}
    return whole | {"tensors": rows}


def _spread(crew: Crew, mine: Loaded | None, stem: str, name: str, kind: str, shape: list[int]) -> Tensor:
    dtype = getattr(torch, kind)
    value = torch.empty(shape, dtype=dtype) if mine is None else mine.tensors[stem][name].contiguous()
    return crew.spread(value)
