"""Objects of the script that nobody passed to us: found among all that live, by their type alone."""

from __future__ import annotations

import gc
import sys
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from safelight.monitors.shards import local_of

MOST = 0.5  # of what an optimizer trains: a text encoder beside a network has less
WRAPPERS = ("AcceleratedOptimizer",)
SAME_TABLE = 1e-3  # of an entry: tables are read back from float32


def living(kind: type) -> list[Any]:
    """Instances, by `type`, never by isinstance: that may run code of lazy stand-ins.

    Not by gc.get_objects(): its list holds tuples that other threads are still building, and those threads fail.
    Instances refer to their class, so that those who refer to it are enough.
    """
    kinds = _with_subclasses(kind)
    return [each for each in gc.get_referrers(*kinds) if type(each) in kinds]


def _with_subclasses(kind: type) -> set[type]:
    found, ahead = {kind}, [kind]
    while ahead:
        new = set(type.__subclasses__(ahead.pop())) - found
        found |= new
        ahead += new
    return found


def optimizer_of(network: nn.Module) -> torch.optim.Optimizer | None:
    """That holds most of the network's trained parameters; where none holds any, most of its frozen ones."""
    found = [each for each in living(torch.optim.Optimizer) if not _is_wrapper(each)]
    held = [(*held_of(network, each), number) for number, each in enumerate(found)]
    trained, frozen, place = max(held, default=(0, 0, 0))
    return found[place] if trained or frozen else None


def held_of(network: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[int, int]:
    """Numbers that are trained, and numbers that are frozen: weights that were frozen after it was made, say."""
    trained, frozen = (
        {id(p): p.numel() for p in network.parameters() if p.requires_grad == flag} for flag in (True, False)
    )
    return held_numbers(optimizer, trained), held_numbers(optimizer, frozen)


def held_by_others(optimizer: torch.optim.Optimizer) -> frozenset[int]:
    """Ids of parameters in all optimizers but one: a network may be trained by several."""
    others = [each for each in living(torch.optim.Optimizer) if each is not optimizer and not _is_wrapper(each)]
    groups = [group for each in others for group in getattr(each, "param_groups", ())]
    return frozenset(id(p) for group in groups for p in group["params"])


def whole_of(part: nn.Module, optimizer: torch.optim.Optimizer) -> nn.Module | None:
    """The smallest module that holds a part and most of what the optimizer trains, where the part itself does not."""
    held = {id(p): p.numel() for group in optimizer.param_groups for p in group["params"]}

    def share(module: nn.Module) -> float:
        return sum(held.get(id(p), 0) for p in module.parameters()) / max(1, sum(held.values()))

    if share(part) >= MOST:
        return None
    found = [each for each in living(nn.Module) if any(inner is part for inner in each.modules())]
    found = [each for each in found if share(each) >= MOST]
    return min(found, key=lambda each: sum(p.numel() for p in each.parameters()), default=None)


def frozen_whole_of(part: nn.Module, network: nn.Module) -> nn.Module:
    """The largest module around it that the trained network is no part of: an autoencoder may be called layer by layer.
    Its parameters need not be frozen, it is enough that it is called without gradients."""
    own = set(network.modules())
    while True:
        around = [each for each in _parents_of(part) if each not in own and network not in set(each.modules())]
        if not around:
            return part
        part = around[0]


def _parents_of(part: nn.Module) -> list[nn.Module]:
    """By who refers to its name in a module: the classes of all modules would be thousands to look for."""
    found, ahead = list[nn.Module](), [each for each in gc.get_referrers(part) if type(each) is dict]
    for _ in range(2):  # from a table of submodules to the attributes of a module, and to the module
        holders = gc.get_referrers(*ahead) if ahead else []
        modules = (each for each in holders if issubclass(type(each), nn.Module))
        found += [each for each in modules if any(child is part for child in each.children())]
        ahead = [each for each in holders if type(each) is dict]
    return found


def prediction_of_schedulers(alphas: Tensor) -> str | None:
    """What diffusers' schedulers with that table of alphas_cumprod say that the network predicts, if all say one."""
    loaded = sys.modules.get("diffusers.schedulers.scheduling_utils")
    kind = getattr(loaded, "SchedulerMixin", None)
    found = [] if kind is None else [each for each in living(kind) if _has_table(each, alphas)]
    types = {getattr(getattr(each, "config", None), "prediction_type", None) for each in found}
    return types.pop() if len(types) == 1 else None


def _has_table(scheduler: Any, alphas: Tensor) -> bool:
    table = getattr(scheduler, "alphas_cumprod", None)
    if not isinstance(table, Tensor) or table.shape != alphas.shape:
        return False
    return torch.allclose(table.detach().to(alphas), alphas, rtol=SAME_TABLE, atol=0)


def held_numbers(optimizer: torch.optim.Optimizer, wanted: dict[int, int]) -> int:
    groups = getattr(optimizer, "param_groups", ())
    return sum({id(p): wanted.get(id(p), 0) for group in groups for p in group["params"]}.values())


def has_compiled(network: nn.Module | None) -> bool:
    """Whether `network`, or any where none is named, was given to torch.compile before anybody looked."""
    loaded = sys.modules.get("torch._dynamo.eval_frame")
    kind = getattr(loaded, "OptimizedModule", None)
    if kind is None or not living(kind):
        return False
    gc.collect()  # those that nobody holds any more do not count
    return any(network is None or network in set(each.modules()) for each in living(kind))


def scaler_in_use() -> Any:
    """The only gradient scaler that is switched on."""
    found = [each for each in living(torch.amp.GradScaler) if each.is_enabled()]
    return found[0] if len(found) == 1 else None


def averages_like(network: nn.Module) -> list[Any]:
    """Modules, mappings and lists of tensors with the shapes of the network's parameters, which are not those."""
    everything = list(network.named_parameters())
    trained = [(name, p) for name, p in everything if p.requires_grad]
    own = {id(p) for _, p in everything} | {_address(p) for _, p in everything}
    parameters, first = {len(named): [p for _, p in named] for named in (everything, trained)}, trained[0][0]
    found = [
        each
        for each in living(type(network))
        if type(each) is type(network)
        and each is not network
        and _fits(list(each.parameters()), parameters[len(everything)], own)
    ]
    shape = trained[0][1].shape
    alike = [each for each in living(Tensor) if _shape_of(each) == shape and id(each) not in own]
    for each in gc.get_referrers(*alike) if alike else ():
        kind = type(each)
        if kind is list or kind is tuple:
            fits = len(each) in parameters and _fits(each, parameters[len(each)], own)
        elif kind is dict or kind is OrderedDict:
            fits = len(each) >= len(trained) and first in each and _fits_by_name(each, trained, own)
        else:
            continue
        if fits and each is not alike:
            found.append(each)
    return found


def _shape_of(tensor: Tensor) -> torch.Size | None:
    """None of lazy parameters and nested tensors, which have none."""
    with suppress(Exception):
        return tensor.shape
    return None


def _fits_by_name(mapping: Any, named_parameters: Sequence[tuple[str, nn.Parameter]], own: set[int]) -> bool:
    return _fits([mapping.get(name) for name, _ in named_parameters], [p for _, p in named_parameters], own)


def _fits(tensors: Sequence[Any], parameters: Sequence[Tensor], own: set[int]) -> bool:
    if len(tensors) != len(parameters) or not tensors or not issubclass(type(tensors[0]), Tensor):
        return False
    return all(
        issubclass(type(t), Tensor) and t.shape == p.shape and id(t) not in own and _address(t) not in own
        for t, p in zip(tensors, parameters, strict=True)
    )


def _address(tensor: Tensor) -> int:
    """0 of a piece that is empty: others of them are not the same memory."""
    return local_of(tensor.detach()).data_ptr() or -id(tensor)


def _is_wrapper(optimizer: Any) -> bool:
    return any(kind.__name__ in WRAPPERS for kind in type(optimizer).__mro__)
