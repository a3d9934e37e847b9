"""Calls of modules in a captured step: those that may be of the trained network are noted, frozen ones left alone."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as modules
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from safelight.capturing.patches import weakly
from safelight.capturing.trace import SeenCall, Trace, tensors_in
from safelight.model.calls import answer_of

MIN_BLOCK_SHARE = 0.5  # of the trained numbers of the outermost module: smaller modules are its blocks


@dataclass(slots=True)
class _Entry:
    module: nn.Module
    trained: int
    """Numbers that this call trains; 0 where it trains none."""
    call: SeenCall | None = None


class ModuleCalls:
    """Global hooks, there only while a step is captured. `aside` is called with True where a frozen network begins, and
    with False where it ends: what happens in between is its own business, and its fast paths stay as they are."""

    def __init__(
        self,
        trace: Trace,
        aside: Callable[[bool], None],
        fail: Callable[[Exception], None],
        is_looking: Callable[[], bool],
    ) -> None:
        self._trace, self._aside, self._fail, self._is_looking = trace, aside, fail, is_looking
        self._stack: list[_Entry] = []
        self._opaque = 0
        self._sizes: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
        self._undo: list[Callable[[], object]] = []

    def attach(self) -> None:
        if not self._undo:
            self._stack, self._opaque = [], 0
            after = register_module_forward_hook(weakly(self._after), with_kwargs=True, always_call=True)
            self._undo = [
                register_module_forward_pre_hook(weakly(self._before)).remove,
                after.remove,
                lambda: _forget(after.id),
            ]

    def detach(self) -> None:
        while self._undo:
            self._undo.pop()()
        self._stack, self._opaque = [], 0

    def _looks(self) -> bool:
        return self._is_looking() and not torch.compiler.is_compiling()

    def _before(self, module: nn.Module, _: Any) -> None:
        if not self._looks():
            return
        try:
            self._enter(module)
        except Exception as error:
            self._fail(error)

    def _after(self, module: nn.Module, inputs: Any, *rest: Any) -> None:
        if not self._looks():
            return
        try:
            named, output = rest if len(rest) == 2 else ({}, None)  # torch leaves the names out after an exception
            self._leave(module, inputs, named, output)
        except Exception as error:
            self._fail(error)

    def _enter(self, module: nn.Module) -> None:
        if self._opaque:
            self._opaque += 1
            return
        trained = self._trained(module) if torch.is_grad_enabled() else 0
        if not trained and next(module.parameters(), None) is not None:
            self._opaque = 1
            self._stack.append(_Entry(module, 0))
            self._aside(True)
            return
        entry = _Entry(module, trained)
        outermost = next((each.trained for each in self._stack if each.trained), trained)
        if trained and trained >= MIN_BLOCK_SHARE * outermost:
            entry.call = SeenCall(
                module, self._trace.next_order(), len(self._stack), trained, torch.get_rng_state(), module.training
            )
        self._stack.append(entry)

    def _leave(self, module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
        if self._opaque > 1:
            self._opaque -= 1
            return
        while self._stack:  # an interrupt may have left some without a word
            entry = self._stack.pop()
            if entry.module is module:
                break
        else:
            return
        if self._opaque:
            self._opaque = 0
            self._aside(False)
            for tensor in tensors_in(_fields(output)):
                self._trace.note(tensor, frozen=module)
        elif (call := entry.call) is not None and output is not None:
            answer = answer_of(output)
            kind = "cpu" if answer is None else answer.device.type
            call.half = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
            call.inputs, call.named, call.answer, call.ended = inputs, named, answer, self._trace.next_order()
            self._trace.calls.append(call)

    def _trained(self, module: nn.Module) -> int:
        """Now, where it trains nothing or did so before: some loops freeze a network for half of every step."""
        if not any(p.requires_grad for p in module.parameters()):
            return 0
        if not self._sizes.get(module):
            self._sizes[module] = sum(p.numel() for p in module.parameters() if p.requires_grad)
        return self._sizes[module]


def _fields(output: Any) -> Any:
    """The tensors of what a network returned, also of an output object of diffusers or transformers."""
    if isinstance(output, torch.Tensor | list | tuple | dict):
        return output
    inner = getattr(output, "latent_dist", output)
    return [value for value in getattr(inner, "__dict__", {}).values() if isinstance(value, torch.Tensor)]


def _forget(hook: int) -> None:
    """What `remove` leaves in two tables of torch: a compiled module would warn of a global hook for ever."""
    for table in (modules._global_forward_hooks_always_called, modules._global_forward_hooks_with_kwargs):
        table.pop(hook, None)
