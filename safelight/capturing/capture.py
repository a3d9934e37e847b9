"""Looks at whatever trains in this process: explains micro-batches at some updates, and costs nothing between them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol

import torch
import torch.nn.utils.clip_grad as clipping
import torch.utils.data.dataloader as loaders
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from safelight.capturing.ema import EmaSearch
from safelight.capturing.explanation import ExplainedMicroBatch, explain
from safelight.capturing.living import has_compiled, held_of, optimizer_of
from safelight.capturing.patches import Patches, is_wrapped, weakly
from safelight.capturing.trace import SeenCall, tensors_in
from safelight.capturing.window import CaptureWindow
from safelight.monitors.hook_table import hook_before_call, is_traced
from safelight.monitors.parameters import unwrapped
from safelight.monitors.shards import is_sharded
from safelight.monitors.step_hooks import remove_silenced, silence
from safelight.probes.forward_pass import Call, ForwardPass
from safelight.probes.probe_schedule import DENSE_PAIR_INTERVAL, DENSE_UNTIL_STEP, LATE_INTERVAL, SETTLED_STEP, due_at
from safelight.words import first_line


def is_captured(updates: int) -> bool:
    """Whether the step after so many updates is: all of the first, two in a row now and then, and those that are
    replayed."""
    due = due_at(updates)
    every = DENSE_PAIR_INTERVAL if updates < SETTLED_STEP else LATE_INTERVAL
    return updates < DENSE_UNTIL_STEP or updates % every < 2 or due.replay or due.search


class CaptureListener(Protocol):
    """Receives the captured micro-batches. What it raises reaches the script."""

    def found(self, network: nn.Module, optimizer: torch.optim.Optimizer, first: ExplainedMicroBatch | None) -> None:
        """Once, before the first update where it can be; `first`: a micro-batch that proves it."""
        ...

    def last_call(self) -> Call | None:
        """The network's, as the follower saw it; asked for before every backward pass."""
        ...

    def micro_batch(self, explained: ExplainedMicroBatch) -> None:
        """When the next one goes backward, the last one of an update after it: by then the network may have been called
        again."""
        ...

    def updated(self) -> None: ...


class Capture:
    """One at a time. A fault of ours ends it in words; the script continues."""

    def __init__(
        self,
        follower: CaptureListener,
        say: Callable[[str], None],
        *,
        network: nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        """`network` and `optimizer`: where they are known, so that none has to be found."""
        self._follower, self._say = follower, say
        self.network = None if network is None else unwrapped(network)
        self.optimizer = optimizer
        self._window = CaptureWindow(weakly(self._fail))
        self._patches, self._undo = Patches(), list[Callable[[], None]]()
        self._step_hooks: list[RemovableHandle] = []
        self._is_on = self._in_step = False
        self._late: tuple[nn.Module, torch.optim.Optimizer, ExplainedMicroBatch] | None = None
        self._shown: ExplainedMicroBatch | None = None  # a micro-batch that proves a network that is sharded
        self._is_proven = network is not None
        self._division = 1.0  # of the loss, before backward
        self._was_called = False
        self._last_called: nn.Module | None = None
        self._pending: list[ExplainedMicroBatch] = []
        self._micro_batches = self.updates = 0
        self.accumulates: int | None = None
        self.clips: tuple[str, float] | None = None
        self.is_compiled = False
        self.ema: EmaSearch | None = None

    # --- on and off -----------------------------------------------------------------------------------------------

    def start(self) -> bool:
        """False where another capture is on."""
        if is_wrapped(torch.autograd, "backward"):
            gc.collect()  # one that was left without an end, as in a notebook's cell that is run again
        if is_wrapped(torch.autograd, "backward"):
            return False
        self._is_on, self.is_compiled = True, has_compiled(self.network)
        wrap = self._patches.wrap
        wrap(torch.Tensor, "backward", self._go_backward)  # before a function mode sees it
        wrap(torch.autograd, "backward", self._go_backward)
        wrap(loaders._BaseDataLoaderIter, "__next__", self._take_batch)
        wrap(torch.amp.GradScaler, "scale", self._scale)
        wrap(torch, "compile", self._compile)
        self._patches.wrap_everywhere(clipping, "clip_grad_norm_", self._clip_norm)
        self._patches.wrap_everywhere(clipping, "clip_grad_value_", self._clip_value)
        remove_silenced()
        self._step_hooks = [
            register_optimizer_step_pre_hook(weakly(self._before_step)),
            register_optimizer_step_post_hook(weakly(self._after_step)),
        ]
        if self.network is not None:
            self._follow(self.network)
        if not self.is_compiled:
            self._window.open()
        return True

    def finish(self, *, inside_step: bool = False) -> None:
        """Takes everything off. `inside_step`: torch may be going through its hooks of optimizers just now."""
        if self._is_on:
            self._is_on = False
            self._window.close()
            self._patches.restore()
            while self._undo:
                self._undo.pop()()
            silence(self._step_hooks)
            if not inside_step:
                remove_silenced()
            self._pending.clear()
            self._last_called = self._late = None
            if self.ema is not None:
                self.ema.drop()

    def __del__(self) -> None:
        self.finish(inside_step=True)  # whenever the garbage collector comes

    def aside(self) -> AbstractContextManager[None]:
        """For work of the follower at other times: it is not a part of the script."""
        return self._window.aside()

    @property
    def _is_ours(self) -> bool:
        """Whether what is called now is the script's own, in the thread that is looked at."""
        self._window.settle()
        return self._is_on and not self._window.is_aside and self._window.is_here

    def _fail(self, error: Exception) -> None:
        if self._is_on:
            self.finish(inside_step=True)
            reason = first_line(error)
            self._say(
                f"Safelight's capture stopped ({type(error).__name__}: {reason}); your training continues without it."
            )

    def _guarded(self, act: Callable[..., object], *given: Any) -> None:
        try:
            act(*given)
        except Exception as error:
            self._fail(error)

    # --- what is called instead of functions of torch -------------------------------------------------------------

    def _take_batch(self, function: Callable[..., Any], loader: Any) -> Any:
        if not (self._window.is_open and self._is_ours):
            return function(loader)
        with self._window.aside():
            batch = function(loader)
        self._guarded(lambda: [self._window.trace.note(tensor) for tensor in tensors_in(batch)])
        return batch

    def _scale(self, function: Callable[..., Any], *given: Any, **named: Any) -> Any:
        scaled, outputs = function(*given, **named), _argument(given, named, 1, "outputs")
        if isinstance(outputs, Tensor) and isinstance(scaled, Tensor) and scaled is not outputs and self._is_ours:
            self._window.trace.note_scaled(scaled, outputs, 1.0)
        return scaled

    def _compile(self, function: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """From now on hooks and modes would be compiled, too, or warned about."""
        if self._is_on:
            self.is_compiled = True
            self._guarded(self._window.close)
        return function(*given, **named)

    def _clip_norm(self, function: Callable[..., Any], *given: Any, **named: Any) -> Any:
        self._note_clipping("norm", _argument(given, named, 1, "max_norm"))
        return function(*given, **named)

    def _clip_value(self, function: Callable[..., Any], *given: Any, **named: Any) -> Any:
        self._note_clipping("value", _argument(given, named, 1, "clip_value"))
        return function(*given, **named)

    def _note_clipping(self, kind: str, limit: Any) -> None:
        if isinstance(limit, int | float) and self._is_ours:
            self.clips = kind, float(limit)

    def _go_backward(self, function: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if self._is_ours:  # not of checkpointing, which goes backward inside of backward
            self.feed()
            self._guarded(self._before_backward, _argument(given, named, 0, "tensors"))
            with self._window.aside():
                return function(*given, **named)
        return function(*given, **named)

    # --- a micro-batch --------------------------------------------------------------------------------------------

    def _before_backward(self, tensors: Any) -> None:
        loss = tensors if isinstance(tensors, Tensor) else next(tensors_in(tensors), None)
        if loss is None:
            return
        trace = self._window.trace
        plain, factor = trace.unscaled(loss)
        if not self._window.is_open:
            trace.clear()
            if self._was_called:
                self._add(ExplainedMicroBatch(ForwardPass(plain.detach() / self._division)))
        elif calls := self._network_calls():
            with self._window.aside(), torch.no_grad():
                explained = explain(trace, plain, calls)
            trace.clear()
            self._division = factor
            self._find(explained)
            self._add(explained)

    def _add(self, explained: ExplainedMicroBatch) -> None:
        self._was_called = False
        self._micro_batches += 1
        if (call := self._follower.last_call()) is not None:
            explained = replace(explained, passed=replace(explained.passed, call=call))
        self._pending.append(explained)

    def _network_calls(self) -> list[SeenCall]:
        """The outermost first."""
        calls = sorted(self._window.trace.calls, key=lambda call: (-call.trained, call.depth, -call.order))
        if self.network is None:
            return calls
        return [call for call in calls if unwrapped(call.module) is self.network] or ([] if self._is_proven else calls)

    def feed(self, *, but_last: bool = False) -> None:
        """Tells of the micro-batches that went backward."""
        if self.network is not None and self.optimizer is not None:
            kept = max(0, len(self._pending) - 1) if but_last else len(self._pending)
            pending, self._pending = self._pending[:kept], self._pending[kept:]
            with self._window.aside():
                for explained in pending:
                    self._follower.micro_batch(explained)

    # --- the network and its optimizer ----------------------------------------------------------------------------

    def _find(self, explained: ExplainedMicroBatch) -> None:
        network = explained.network
        if self.network is not None or network is None:
            return
        self._last_called = network
        if is_sharded(network):  # in a pass it has other parameters than the optimizer: opened before the update
            self._shown = explained if explained.mixing is not None else self._shown
        elif explained.mixing is not None and (optimizer := optimizer_of(network)) is not None:
            if self._in_step:  # inside of a closure: nobody would see the gradients of this update
                self._late = network, optimizer, explained
            else:
                self._open(network, optimizer, explained)

    def _choose_network(self, optimizer: torch.optim.Optimizer) -> None:
        """Nothing was proven, or the optimizer was not there: the outermost module that holds what it trains."""
        network = self._last_called
        if network is not None and any(held_of(network, optimizer)):
            self._open(network, optimizer, self._shown)

    def _open(self, module: nn.Module, optimizer: torch.optim.Optimizer, first: ExplainedMicroBatch | None) -> None:
        self.network, self.optimizer, self._last_called = unwrapped(module), optimizer, None
        self._is_proven = first is not None
        self._follow(self.network)
        with self._window.aside():
            self._follower.found(module, optimizer, first)

    def _follow(self, network: nn.Module) -> None:
        self.ema = EmaSearch(network)
        self._undo.append(hook_before_call(network, weakly(self._note_call)))

    def _note_call(self, *_: Any) -> None:
        if is_traced():  # a compiler would take what looks for a part of the network
            self._guarded(self._window.close)
        elif torch.is_grad_enabled() and not self._window.is_aside:
            self._was_called = True

    # --- an update ------------------------------------------------------------------------------------------------

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not self._is_ours:
            return
        if self.optimizer is None:
            self._guarded(self._choose_network, optimizer)
            self.feed(but_last=True)  # after the update, the first one would be taken for all of it
            self._in_step = True
        if optimizer is self.optimizer and self.ema is not None and self._window.is_open:
            with self._window.aside():
                self._guarded(self.ema.before_update)

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._in_step = False
        if not self._is_ours:
            return
        if self._late is not None and optimizer is self._late[1]:
            late, self._late = self._late, None
            self._pending.clear()
            self._guarded(self._open, *late)
        if optimizer is not self.optimizer:
            return
        self._window.close()
        self.feed()
        self.accumulates, self._micro_batches = self._micro_batches, 0
        self.updates += 1
        with self._window.aside():
            self._follower.updated()
        if self._is_on and not self.is_compiled and is_captured(self.updates):
            if self.ema is not None:
                self._guarded(self.ema.after_update, self.updates)
            self._guarded(self._window.open)


def _argument(given: tuple[Any, ...], named: dict[str, Any], place: int, name: str) -> Any:
    """Of a call that may pass it by its place or by its name; None where it passes neither."""
    return given[place] if len(given) > place else named.get(name)
