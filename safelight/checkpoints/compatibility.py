"""Whether a checkpoint that is whole also fits the run: every tensor and number is checked before any is used."""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Container, Mapping, Sequence
from typing import Any, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn

from safelight.checkpoints.snapshot import Loaded, environment
from safelight.errors import CheckpointError

MAX_FLOAT32 = torch.finfo(torch.float32).max
MOMENTS = {"step", "exp_avg", "exp_avg_sq"}
_hints = functools.cache(get_type_hints)


def check_tensors(
    stem: str, expected: Mapping[str, Tensor], loaded: Loaded, advice: str = "Resume with the config of that run."
) -> None:
    """The same names, shapes and kinds of number: `copy_` would stretch one number over a whole tensor, in silence."""
    found = loaded.tensors.get(stem)
    if found is None:
        raise CheckpointError(f"{loaded.path} has no {stem}.safetensors, which every checkpoint of this run has.")
    missing, surplus = expected.keys() - found.keys(), found.keys() - expected.keys()
    same = expected.keys() & found.keys()
    wrong = {n for n in same if (expected[n].shape, expected[n].dtype) != (found[n].shape, found[n].dtype)}
    if missing or surplus or wrong:
        raise CheckpointError(
            f"{loaded.path} is not of this model: in {stem}, {len(missing)} tensors are missing, {len(surplus)} are "
            f"unknown, {len(wrong)} have another shape or kind (for example {min(missing | surplus | wrong)!r:.80}). "
            f"{advice}"
        )


def environment_changes(loaded: Loaded, without: Container[str] = ()) -> list[str]:
    """What the bits depend on that is not as it was when this was saved, in words."""
    now, then = environment(), loaded.manifest.get("environment", {})
    other = [name for name in now if name in then and then[name] != now[name] and name not in without]
    return [f"{name} was {then[name]}, is {now[name]}" for name in other]


def check_moments(named_parameters: Sequence[tuple[str, nn.Parameter]], loaded: Loaded) -> None:
    """A parameter has all moments of the optimizer or, before its first update, none."""
    names, expected = dict(named_parameters), dict[str, Tensor]()
    seen = {full.rpartition("/")[0] for full in loaded.tensors.get("optimizer", {})}
    for name in seen & names.keys():
        likes = dict.fromkeys(MOMENTS - {"step"}, names[name]) | {"step": names[name].new_zeros(()).float()}
        expected |= {f"{name}/{part}": like for part, like in likes.items()}
    check_tensors("optimizer", expected, loaded)


def check_numbers(kind: type, found: Any, where: str, keys: Mapping[str, str] = types.MappingProxyType({})) -> None:
    """The fields of a dataclass as JSON holds them; one that is not there keeps its default, others are left alone.
    `keys`: of fields that have another name in JSON."""
    if not isinstance(found, Mapping):
        raise CheckpointError(f"{where} should be an object, and is a {type(found).__name__}.")
    for name, hint in _hints(kind).items():
        key = keys.get(name, name)
        if key in found and not _is_of(found[key], hint):
            raise CheckpointError(f"{where}: {key} is {found[key]!r:.40}, which cannot be.")


def check_scalars(names: Sequence[str], loaded: Loaded) -> None:
    for name in names:
        value: Any = loaded.state.get(name)
        if not _is_of(value, float) or MAX_FLOAT32 < abs(value) < math.inf:
            raise CheckpointError(f"{loaded.path}: {name} is {value!r:.40}; a number of 32 bits was expected.")


def check_order(loaded: Loaded, count: int) -> None:
    """In which the gradients of so many parameters come; runs of one process do not know it."""
    order: Any = loaded.state.get("gradient_order", [])
    if not _is_of(order, list[int]) or (order and sorted(order) != list(range(count))):
        raise CheckpointError(f"{loaded.path}: gradient_order does not name each of {count:,} parameters once.")


def _is_of(value: Any, hint: Any) -> bool:
    if get_origin(hint) in (Union, types.UnionType):
        return any(_is_of(value, each) for each in get_args(hint))
    if get_origin(hint) is list:
        return isinstance(value, list) and all(_is_of(each, get_args(hint)[0]) for each in value)
    if hint is float:
        return isinstance(value, float) or _is_of(value, int)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62
    return isinstance(value, hint)
