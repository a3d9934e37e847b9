"""Hooks that stay with the network they are on: copies, pickles and scripted forms of it have none of them."""

from __future__ import annotations

import copy
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, SupportsIndex

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

TABLES = ("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_forward_hooks", "_forward_hooks_with_kwargs")


class HookTable(OrderedDict[int, Any]):
    """In the place of a table of hooks of a module. Ours are called as all others are, but whoever copies the module,
    pickles it, sends it to another process or compiles its hooks finds only the others."""

    def __init__(self, before: OrderedDict[int, Any]) -> None:
        super().__init__(before)
        self.ours: set[int] = set()
        self.before, self._known = before, set(before)  # where the handles of hooks from before remove them

    def others(self) -> OrderedDict[int, Any]:
        return OrderedDict((number, hook) for number, hook in self.items() if number not in self.ours)

    def is_as_before(self) -> bool:
        return self.others().keys() == self.before.keys()

    def items(self) -> Any:
        if len(self.before) != len(self._known):
            for number in self._known - self.before.keys():
                self.pop(number, None)
            self._known = set(self.before)
        return super().items()

    def values(self) -> Any:  # asked for by TorchScript, which would compile them
        return self.others().values()

    def __reduce_ex__(self, _: SupportsIndex) -> tuple[Any, ...]:
        return OrderedDict, ([*self.others().items()],)

    def __copy__(self) -> OrderedDict[int, Any]:
        return self.others()

    def __deepcopy__(self, memo: dict[int, Any]) -> OrderedDict[int, Any]:
        return copy.deepcopy(self.others(), memo)


def hook_before_call(module: nn.Module, hook: Callable[..., Any]) -> Callable[[], None]:
    """`hook(module, inputs, named)` before every call; returns what removes it."""
    tables = _open_tables(module)
    return _hide(module, tables, module.register_forward_pre_hook(hook, with_kwargs=True))


def hook_after_call(module: nn.Module, hook: Callable[..., Any]) -> Callable[[], None]:
    """`hook(module, inputs, named, output)` after every call; returns what removes it."""
    tables = _open_tables(module)
    return _hide(module, tables, module.register_forward_hook(hook, with_kwargs=True))


def _open_tables(module: nn.Module) -> dict[str, HookTable]:
    found = {}
    for name in TABLES:
        table = getattr(module, name)
        found[name] = table if isinstance(table, HookTable) else HookTable(table)
        setattr(module, name, found[name])
    return found


def _hide(module: nn.Module, tables: dict[str, HookTable], handle: RemovableHandle) -> Callable[[], None]:
    for table in tables.values():
        table.ours.add(handle.id)
    held = weakref.ref(module)  # whoever keeps what removes the hook does not keep the module

    def remove() -> None:
        handle.remove()
        owner = held()
        for name, table in tables.items():
            table.ours.discard(handle.id)
            if owner is not None and not table.ours and table.is_as_before() and getattr(owner, name) is table:
                setattr(owner, name, table.before)

    return remove


def is_traced() -> bool:
    """Whether a call is one of a compiler, which would take what a hook does for part of the network."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing() or torch.jit.is_scripting()
