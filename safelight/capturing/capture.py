"""Looks at whatever trains in this process: explains micro-batches at some updates, and costs nothing between them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
import torch.nn.utils.clip_grad as clipping
import torch.utils.data.dataloader as loaders
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from safelight.capturing.ema import EmaSearch
from safelight.capturing.explanation import Explained, explain, tensors_in
from safelight.capturing.lineage_mode import LineageMode
from safelight.capturing.living import held_numbers, optimizer_of
from safelight.capturing.mode_stack import push_below, remove
from safelight.capturing.module_calls import ModuleCalls
from safelight.capturing.patches import Patches
from safelight.capturing.trace import SeenCall, Trace
from safelight.monitors.modules import unwrapped
from safelight.probes.probe_schedule import CLOSE, EVERY, SELDOM, SETTLED, due_at


def is_captured(updates: int) -> bool:
    """Whether the step after so many updates is: all of the first, two in a row now and then, and those that are
    replayed."""
    due = due_at(updates)
    every = EVERY if updates < SETTLED else SELDOM
    return updates < CLOSE or updates % every < 2 or due.replay or due.search


class Follower(Protocol):
    """Who is told."""

    def found(self, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Once, before the first update where it can be."""
        ...

    def micro_batch(self, explained: Explained) -> None:
        """The last one of an update after it."""
        ...

    def updated(self) -> None: ...


class Capture:
    """One at a time. A fault of ours ends it in words; the script continues."""

    def __init__(
        self,
        follower: Follower,
        say: Callable[[str], None],
        *,
        network: nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        self._follower, self._say = follower, say
        self.network: nn.Module | None = None if network is None else unwrapped(network)
        self.optimizer = optimizer
        self.trace = Trace()
        self._mode = LineageMode(self.trace, self._fail)
        self._calls = ModuleCalls(self.trace, self._step_aside, self._fail)
        self._calls.is_ours = self._is_ours
        self._patches, self._undo = Patches(), list[Callable[[], None]]()
        self._process, self._thread = os.getpid(), threading.get_ident()
        self._is_on = self._is_busy = self._is_capturing = self._in_backward = False
        self._division = 1.0
        self._was_called = False
        self._pending: list[Explained] = []
        self._micro_batches = 0
        self.updates = 0
        self.accumulates: int | None = None
        self.clips: tuple[str, float] | None = None
        self.seen_norm: Tensor | None = None
        self.is_compiled = False
        self.ema: EmaSearch | None = None
        self.is_proven = False
        self._in_step = self._is_late = False
        self._error: Exception | None = None

    # --- on and off -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._is_on = True
        wrap = self._patches
        wrap.wrap(torch.Tensor, "backward", self._around_backward)  # before a function mode sees it
        wrap.wrap(torch.autograd, "backward", self._around_backward)
        wrap.wrap(loaders._BaseDataLoaderIter, "__next__", self._around_batch)
        wrap.wrap(torch.amp.GradScaler, "scale", self._around_scale)
        wrap.wrap(torch, "compile", self._around_compile)
        wrap.wrap_everywhere(clipping, "clip_grad_norm_", self._around_clip("norm"))
        wrap.wrap_everywhere(clipping, "clip_grad_value_", self._around_clip("value"))
        self._undo = [
            register_optimizer_step_pre_hook(self._before_step).remove,
            register_optimizer_step_post_hook(self._after_step).remove,
        ]
        if self.network is not None:
            self._follow_network(self.network)
        self._enter()

    def finish(self) -> None:
        """Takes everything off."""
        if not self._is_on:
            return
        self._is_on = False
        self._leave()
        self._patches.restore()
        while self._undo:
            self._undo.pop()()
        self._pending.clear()
        if self.ema is not None:
            self.ema.drop()

    def _enter(self) -> None:
        """Captures from now on."""
        if self._is_on and not self._is_capturing and not self.is_compiled and self._is_ours():
            self._is_capturing = True
            self._calls.attach()
            push_below(self._mode)

    def _leave(self) -> None:
        if self._is_capturing:
            self._is_capturing = False
            remove(self._mode)
            self._calls.detach()
        self.trace.clear()

    def _settle(self) -> None:
        """Ends what a fault inside of a function of torch could not: there the mode is not on the stack, and torch puts
        it back."""
        if self._error is not None and not self._mode.depth:
            error, self._error = self._error, None
            self._fail(error)

    @contextmanager
    def _busy(self) -> Iterator[None]:
        """While we or the follower do something: that is no part of the script."""
        before, self._is_busy, self._calls.paused = self._is_busy, True, True
        self._step_aside(True)
        try:
            yield
        finally:
            self._is_busy = before
            self._calls.paused = before or self._in_backward
            self._step_aside(False)

    def _step_aside(self, begins: bool) -> None:
        if self._is_capturing and not self._mode.depth:
            remove(self._mode) if begins else push_below(self._mode)

    def _is_ours(self) -> bool:
        """A forked worker has a copy of all this, and no business with it; another thread may train what it likes."""
        return (
            self._is_on and not self._is_busy and threading.get_ident() == self._thread and os.getpid() == self._process
        )

    def _fail(self, error: Exception) -> None:
        if self._mode.depth:
            self._mode.is_open, self._error = False, error
        elif self._is_on:
            self.finish()
            reason = (str(error).strip().splitlines() or [""])[0][:200]
            self._say(
                f"Safelight's capture stopped ({type(error).__name__}: {reason}); your training continues without it."
            )

    def _guarded(self, act: Callable[..., None], *given: Any) -> None:
        try:
            act(*given)
        except Exception as error:
            self._fail(error)

    # --- what is wrapped ------------------------------------------------------------------------------------------

    def _around_batch(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def next_batch(loader: Any) -> Any:
            looks = self._is_capturing and self._is_ours()
            if not looks:
                return function(loader)
            with self._busy():
                batch = function(loader)
            self._guarded(self._note_batch, batch)
            return batch

        return next_batch

    def _note_batch(self, batch: Any) -> None:
        for tensor in tensors_in(batch):
            self.trace.note(tensor)

    def _around_scale(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def scale(scaler: Any, outputs: Any) -> Any:
            scaled = function(scaler, outputs)
            if isinstance(outputs, Tensor) and isinstance(scaled, Tensor) and scaled is not outputs and self._is_ours():
                self.trace.note_scaled(scaled, outputs, 1.0)
            return scaled

        return scale

    def _around_compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def compile_model(*given: Any, **named: Any) -> Any:
            if self._is_on and not self.is_compiled:
                self.is_compiled = True
                self._guarded(self._leave)
            return function(*given, **named)

        return compile_model

    def _around_clip(self, kind: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def around(function: Callable[..., Any]) -> Callable[..., Any]:
            def clip(parameters: Any, limit: Any, *given: Any, **named: Any) -> Any:
                result = function(parameters, limit, *given, **named)
                if self._is_ours() and isinstance(limit, int | float):
                    self.clips = kind, float(limit)
                    self.seen_norm = result if isinstance(result, Tensor) else None
                return result

            return clip

        return around

    def _around_backward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def backward(tensors: Any, *given: Any, **named: Any) -> Any:
            if self._in_backward or not self._is_ours():  # checkpointing goes backward inside of backward
                return function(tensors, *given, **named)
            self._feed(is_last=False)
            self._guarded(self._before_backward, tensors)
            self._in_backward = self._calls.paused = True
            self._step_aside(True)
            try:
                return function(tensors, *given, **named)
            finally:
                self._in_backward = self._calls.paused = False
                self._step_aside(False)

        return backward

    # --- a micro-batch --------------------------------------------------------------------------------------------

    def _before_backward(self, tensors: Any) -> None:
        loss = tensors if isinstance(tensors, Tensor) else next(tensors_in(tensors), None)
        if loss is None:
            return
        plain, factor = self.trace.unscaled(loss)
        if not self._is_capturing:
            self.trace.clear()
            if self._was_called:
                self._add(Explained(plain.detach() / self._division))
            return
        calls = self._network_calls()
        if not calls:
            return
        with self._busy(), torch.no_grad():
            explained = explain(self.trace, plain, calls)
        self.trace.clear()
        self._division = factor
        if self.optimizer is None and explained.mixing is not None and explained.call is not None:
            self._find_optimizer(explained.call.module)
        if self.network is None and explained.call is not None:
            self._last_call = explained.call
        self._add(explained)

    def _add(self, explained: Explained) -> None:
        self._was_called = False
        self._micro_batches += 1
        self._pending.append(explained)

    def _network_calls(self) -> list[SeenCall]:
        """The outermost first."""
        calls = sorted(self.trace.calls, key=lambda call: (-call.trained, call.depth, -call.order))
        if self.network is None:
            return calls
        return [call for call in calls if unwrapped(call.module) is self.network] or ([] if self.is_proven else calls)

    def _feed(self, *, is_last: bool) -> None:
        """Outside of what is guarded: what a follower raises is meant for the script."""
        if self.network is None or self.optimizer is None:
            if is_last:
                self._pending.clear()
            return
        pending, self._pending = self._pending, []
        with self._busy():
            for explained in pending:
                self._follower.micro_batch(explained)

    # --- the network and its optimizer ----------------------------------------------------------------------------

    _last_call: SeenCall | None = None

    def _find_optimizer(self, module: nn.Module) -> None:
        optimizer = optimizer_of(module)
        if optimizer is not None:
            self.is_proven = True
            self._open(module, optimizer)

    def _open(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.network, self.optimizer, self._last_call = unwrapped(module), optimizer, None
        self._is_late = self._in_step  # found inside of a closure: nobody saw the gradients of this update
        self._follow_network(self.network)
        with self._busy():
            self._follower.found(module, optimizer)

    def _follow_network(self, network: nn.Module) -> None:
        self.ema = EmaSearch(network)

        def note(*_: Any) -> None:
            if torch.is_grad_enabled() and not self._is_busy:
                self._was_called = True

        self._undo.append(network.register_forward_pre_hook(note).remove)

    # --- an update ------------------------------------------------------------------------------------------------

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not self._is_ours():
            return
        if self.optimizer is None:
            self._guarded(self._choose_network, optimizer)
            self._in_step = True
        if optimizer is self.optimizer and self.ema is not None and self._is_capturing:
            with self._busy():
                self._guarded(self.ema.before_update)

    def _choose_network(self, optimizer: torch.optim.Optimizer) -> None:
        """Nothing was proven: the outermost module that holds what the optimizer trains."""
        call = self._last_call
        if call is None:
            return
        wanted = {id(p): p.numel() for p in call.module.parameters() if p.requires_grad}
        if held_numbers(optimizer, wanted):
            self._open(call.module, optimizer)

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._in_step = False
        if not self._is_ours() or optimizer is not self.optimizer:
            return
        self._leave()
        if self._is_late:
            self._is_late = False
            self._pending.clear()
        self._feed(is_last=True)
        self.accumulates, self._micro_batches = self._micro_batches, 0
        self.updates += 1
        with self._busy():
            self._follower.updated()
        if self._is_on and is_captured(self.updates):
            if self.ema is not None:
                self._guarded(self.ema.after_update, self.updates)
            self._guarded(self._enter)
