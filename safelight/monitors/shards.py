"""What this process holds of a tensor that several processes share: all of it, or a piece."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

WHOLE = "whole"
SHARDING = ("FullyShardedDataParallel", "FSDPModule")


def local_of(tensor: Tensor) -> Tensor:
    """The piece of this process, in the same memory; the tensor itself where it is whole. Communicates nothing: most
    functions of torch would, on a sharded tensor, and wait for the other processes."""
    if not _is_dtensor(tensor):
        return tensor
    with torch.no_grad():
        return tensor.to_local()  # type: ignore[attr-defined]


def is_sharded(model: nn.Module) -> bool:
    """By FSDP2, FSDP1 or tensor parallelism."""
    # FSDP2 puts a class of its own below that of each module; in a pass the parameters are whole for a while.
    wrapped = any(kind.__name__ in SHARDING for module in model.modules() for kind in type(module).__mro__)
    return wrapped or any(_is_dtensor(parameter) for parameter in model.parameters())


def pieces_of(parameters: Sequence[Tensor]) -> list[str]:
    """For each parameter, which piece of it this process holds: processes that hold the same one have the same words,
    and must have the same numbers."""
    flat = _flat_ranks() if any(not _is_dtensor(each) for each in parameters) else {}
    return [_piece(each, flat.get(id(each))) for each in parameters]


def share_data(parameters: Sequence[Tensor]) -> bool:
    """Whether some processes see the same data on purpose, as with tensor parallelism: what is sharded is not FSDP's
    alone."""
    sharded: list[Any] = [each for each in parameters if _is_dtensor(each)]
    fully = {
        id(each.sharded_param) for each in living_of("torch.distributed.fsdp._fully_shard._fsdp_param", "FSDPParam")
    }
    layouts = {tuple(map(str, each.placements)) for each in sharded}
    is_simple = all(len(layout) == 1 or (len(layout) == 2 and layout[0].startswith("R")) for layout in layouts)
    return not (is_simple and all(id(each) in fully for each in sharded))


def spans(parameters: Sequence[Tensor], processes: int) -> bool:
    """Whether sharded ones are divided among all processes, and not among those of one stage of a pipeline."""
    sharded: list[Any] = [each for each in parameters if _is_dtensor(each)]
    return bool(sharded) and all(each.device_mesh.size() == processes for each in sharded)


def _piece(parameter: Tensor, flat_rank: int | None) -> str:
    if flat_rank is not None:
        return f"flat {flat_rank}"
    if not _is_dtensor(parameter):
        return WHOLE
    placements, mesh = parameter.placements, parameter.device_mesh  # type: ignore[attr-defined]
    places = mesh.get_coordinate() or [0] * len(placements)
    held = [str(place) if str(kind)[:1] != "R" else "all" for kind, place in zip(placements, places, strict=True)]
    return f"{tuple(parameter.shape)} {' '.join(map(str, placements))} {' '.join(held)}"


def _flat_ranks() -> dict[int, int]:
    """By the id of each parameter that FSDP1 keeps flat, or a view of it: which of the pieces this process has."""
    found: dict[int, int] = {}
    for handle in living_of("torch.distributed.fsdp._flat_param", "FlatParamHandle"):
        if handle.uses_sharded_strategy:
            for each in (handle.flat_param, *(getattr(handle.flat_param, "_params", None) or ())):
                found[id(each)] = handle.rank
    return found


def living_of(module: str, name: str) -> Iterator[Any]:
    """Instances of a class of torch, where it was imported at all."""
    kind = getattr(sys.modules.get(module), name, None)
    return iter(()) if kind is None else (each for each in gc.get_referrers(kind) if type(each) is kind)


def _is_dtensor(tensor: Tensor) -> bool:
    """Also of a parameter: it has the class of what it holds. Asked of every gradient of every step."""
    return type(tensor).__name__ == "DTensor"
