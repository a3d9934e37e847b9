"""Hooks on a network and two of its parameters: its calls, and the gradients as they come."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from safelight import checks
from safelight.probes.forward_pass import Call, answer_of, call_of
from safelight.probes.replay import dense


class CallHooks:
    """Owns the hooks, and what they saw since it was last taken."""

    def __init__(
        self,
        model: nn.Module,
        named: Sequence[tuple[str, nn.Parameter]],
        is_wanted: Callable[[], bool],
        is_close: Callable[[], bool],
        is_replayed: Callable[[], bool],
    ) -> None:
        """Whether the call of this step is needed, and whether the step will be checked closely and replayed: then more
        of it is kept."""
        self._model, self._is_wanted, self._is_close, self._is_replayed = model, is_wanted, is_close, is_replayed
        self.place = _sentinel([parameter for _, parameter in named])
        self.sentinel = None if self.place is None else named[self.place][1]
        self._head = named[-1][1] if named else None
        self.busy = False  # while the network is called by a probe
        self._backwards, self._first = 0, True
        self.cleared = 0  # gradients that came since the last update and were cleared without another
        self._call: Call | None = None
        self._random: Tensor | None = None
        self._came: Tensor | None = None  # the sentinel's gradient as it came out of the backward pass
        self._carried: Tensor | None = None
        self._unheard: list[Tensor] = []
        self._undo: list[Callable[[], None]] = []
        if self.sentinel is not None:
            before = weakref.WeakMethod(self._see_before)
            self._undo.append(self.sentinel.register_hook(lambda g, before=before: (before() or _ignore)(g)).remove)
        for parameter in {id(p): p for p in (self.sentinel, self._head) if p is not None}.values():
            see = weakref.WeakMethod(self._see_gradient)  # torch holds it where no garbage collector looks
            hook = parameter.register_post_accumulate_grad_hook(lambda p, see=see: (see() or _ignore)(p))
            self._undo.append(hook.remove)

    def attach(self, before_call: Callable[[], None], on_call: Callable[[bool, torch.dtype | None], None]) -> None:
        """Hooks the network; samples that are drawn meanwhile and calls by probes are ignored. `on_call` gets whether
        the network was in training mode, and the dtype of autocast."""

        def before(*_: object) -> None:
            if self._is_heard():
                self._random = torch.get_rng_state() if self._is_replayed() else None
                before_call()

        def after(network: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
            if self._is_heard():
                answer, wanted = answer_of(output), self._is_wanted()
                half = _half(answer)
                if answer is not None and answer.requires_grad and answer.dim() > 1 and self._is_close():
                    hear = weakref.WeakMethod(self._hear_answer)
                    answer.register_hook(lambda g, hear=hear: (hear() or _ignore)(g))
                self._call = call_of(network, inputs, named, output, half, self._random) if wanted else None
                on_call(network.training, half)

        self._undo.append(self._model.register_forward_pre_hook(before).remove)
        self._undo.append(self._model.register_forward_hook(after, with_kwargs=True).remove)

    def undo_later(self, undo: Callable[[], None]) -> None:
        """Another hook that is removed with these."""
        self._undo.append(undo)

    def close(self) -> None:
        undo, self._undo = self._undo, []
        for each in undo:
            each()

    def take_call(self) -> Call | None:
        """The last call of the network, once."""
        call, self._call = self._call, None
        return call

    def take_came(self) -> Tensor:
        """The norm of the sentinel's gradient, the largest of several backward passes; -1 where none came."""
        came, self._came = self._came, None
        return torch.tensor(-1.0) if came is None else came

    def take_carried(self) -> dict[str, Tensor]:
        """Whether the sentinel had a gradient already when that of the first backward pass came."""
        carried, self._carried = self._carried, None
        return {} if carried is None else {checks.SENTINEL_CARRIED: carried}

    def take_unheard(self) -> dict[str, Tensor]:
        """The share of samples whose prediction has a gradient of exactly 0."""
        unheard, self._unheard = self._unheard, []
        return {checks.ANSWER_UNHEARD: torch.stack(unheard).mean()} if unheard else {}

    def take_backwards(self) -> int:
        count, self._backwards = self._backwards, 0
        self._first, self.cleared = True, 0
        return count

    def _is_heard(self) -> bool:
        return torch.is_grad_enabled() and not self.busy and not torch.compiler.is_compiling()

    def _see_before(self, _: Tensor) -> None:
        """Just before a gradient is added to what is there."""
        if self.busy or self.sentinel is None:
            return
        there = self.sentinel.grad
        if self._first:
            self._first = False
            if self._is_close():
                self._carried = torch.zeros(()) if there is None else dense(there).any().float()
        elif there is None or (there.device.type == "cpu" and not bool(dense(there).any())):
            self.cleared += 1

    def _hear_answer(self, gradient: Tensor) -> None:
        if not self.busy:
            self._unheard.append(1 - gradient.detach().flatten(1).any(1).float().mean())

    def _see_gradient(self, parameter: Tensor) -> None:
        if self.busy:
            return
        self._backwards += parameter is self._head
        if self._is_close() and parameter.grad is not None:
            norm = dense(parameter.grad).float().norm()
            self._came = norm if self._came is None else torch.maximum(self._came, norm.to(self._came.device))


def _half(answer: Tensor | None) -> torch.dtype | None:
    """The dtype of autocast on the device of the output: inputs may all be named, or on another device."""
    kind = "cpu" if answer is None else answer.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def _ignore(_: Tensor) -> None: ...


def _sentinel(parameters: Sequence[nn.Parameter]) -> int | None:
    """The place of the largest matrix that is still small."""
    fit = [i for i, p in enumerate(parameters) if p.dim() > 1 and p.numel() <= 20_000] or [
        i for i, p in enumerate(parameters) if p.numel() <= 10**6
    ]
    return max(fit, key=lambda i: parameters[i].numel(), default=None)
