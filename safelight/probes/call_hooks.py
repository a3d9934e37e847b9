"""Hooks on a network and two of its parameters: its calls, and the gradients as they come."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from safelight import checks
from safelight.model.calls import answer_of, parameter_names
from safelight.monitors.hook_table import hook_after_call, hook_before_call, is_traced
from safelight.monitors.shards import local_of
from safelight.probes.forward_pass import Call
from safelight.probes.update import dense


class CallHooks:
    """Owns the hooks, and what they saw since it was last taken."""

    def __init__(
        self,
        model: nn.Module,
        named_parameters: Sequence[tuple[str, nn.Parameter]],
        needs_call: Callable[[], bool],
        is_thorough: Callable[[], bool],
        is_replayed: Callable[[], bool],
    ) -> None:
        """Whether the call of this step is needed, and whether the step will be checked thoroughly and replayed: then
        more of it is kept."""
        self._model, self._needs_call = model, needs_call
        self._is_thorough, self._is_replayed = is_thorough, is_replayed
        self.sample_place = _largest_small_matrix([parameter for _, parameter in named_parameters])
        self.sample_parameter = None if self.sample_place is None else named_parameters[self.sample_place][1]
        self._last_parameter = named_parameters[-1][1] if named_parameters else None
        self.paused = False  # while the network is called by a probe
        self._backwards, self._is_first = 0, True
        self.cleared = 0  # gradients that came since the last update and were cleared without another
        self._call: Call | None = None
        self._offered: Call | None = None
        self._random: Tensor | None = None
        self._norm: Tensor | None = None  # of a gradient as it came out of the backward pass
        self._carried: dict[str, Tensor] = {}
        self._without_gradient: list[Tensor] = []
        self.undo: list[Callable[[], None]] = []  # called at the end: each removes a hook
        if self.sample_parameter is not None:
            self.undo.append(self.sample_parameter.register_hook(_weakly(self._before_gradient)).remove)
        for parameter in {id(p): p for p in (self.sample_parameter, self._last_parameter) if p is not None}.values():
            self.undo.append(parameter.register_post_accumulate_grad_hook(_weakly(self._after_gradient)).remove)

    def attach(self, before_call: Callable[[], None], on_call: Callable[[bool, torch.dtype | None], object]) -> None:
        """Hooks the network; samples that are drawn meanwhile and calls by probes are ignored. `on_call` gets whether
        the network was in training mode, and the dtype of autocast."""

        def before(network: nn.Module, *_: object) -> None:
            if network is self._model and self._is_training_call():
                self._random = torch.get_rng_state() if self._is_replayed() else None
                before_call()

        def after(network: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
            if network is self._model and self._is_training_call():  # a shallow copy shares its hooks
                answer = answer_of(output)
                # Of the output's device: inputs may all be named, or on another device.
                kind = "cpu" if answer is None else answer.device.type
                half = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
                if answer is not None and answer.requires_grad and answer.dim() > 1 and self._is_thorough():
                    answer.register_hook(_weakly(self._after_answer_gradient))
                call = Call(inputs, named, answer, network.training, half, self._random, parameter_names(network))
                self._call = call.detached() if self._needs_call() else None
                on_call(network.training, half)

        self.undo.append(hook_before_call(self._model, before))
        self.undo.append(hook_after_call(self._model, after))

    def close(self) -> None:
        while self.undo:
            self.undo.pop(0)()

    @property
    def call(self) -> Call | None:
        """The last call of the network, where it is kept and was not taken yet."""
        return self._call

    def pop_call(self) -> Call | None:
        """The call that was offered, else the last one of the network, once. One that came after the offered one is of
        the next pass, and stays."""
        offered, self._offered = self._offered, None
        call = self._call if offered is None else offered
        self._call = None if call is self._call else self._call
        return call

    def offer_call(self, call: Call) -> None:
        """Of the pass that is added next."""
        if self._needs_call():
            self._offered = call

    def take_norm(self) -> Tensor:
        """The largest norm of a gradient of the two parameters after a backward pass; -1 where there was none."""
        norm, self._norm = self._norm, None
        return torch.tensor(-1.0) if norm is None else norm

    def take_readings(self) -> dict[str, Tensor]:
        """Whether the sample parameter had a gradient already when that of the first backward pass came; the share of
        samples whose prediction has a gradient of exactly 0."""
        shares, readings = self._without_gradient, self._carried
        self._without_gradient, self._carried = [], {}
        return readings | ({checks.ANSWER_UNHEARD: torch.stack(shares).mean()} if shares else {})

    def take_backwards(self) -> int:
        count, self._backwards = self._backwards, 0
        self._is_first, self.cleared = True, 0
        return count

    def _is_training_call(self) -> bool:
        return torch.is_grad_enabled() and not self.paused and not is_traced()

    def _before_gradient(self, _: Tensor) -> None:
        """Just before a gradient is added to what is there."""
        if self.paused or self.sample_parameter is None:
            return
        there = self.sample_parameter.grad
        if self._is_first:
            self._is_first = False
            if self._is_thorough():
                carried = torch.zeros(()) if there is None else dense(there).any().float()
                self._carried = {checks.SAMPLE_PARAMETER_CARRIED: carried}
        elif there is None or (there.device.type == "cpu" and not bool(dense(there).any())):
            self.cleared += 1

    def _after_answer_gradient(self, gradient: Tensor) -> None:
        if not self.paused:
            self._without_gradient.append(1 - gradient.detach().flatten(1).any(1).float().mean())

    def _after_gradient(self, parameter: Tensor) -> None:
        if self.paused:
            return
        self._backwards += parameter is self._last_parameter
        if self._is_thorough() and parameter.grad is not None:
            norm = dense(parameter.grad).float().norm()
            self._norm = norm if self._norm is None else torch.maximum(self._norm, norm.to(self._norm.device))


def _weakly(method: Callable[[Tensor], None]) -> Callable[[Tensor], None]:
    """A hook that does not keep its object alive: torch holds it where no garbage collector looks."""
    held = weakref.WeakMethod(method)

    def hook(value: Tensor) -> None:
        if (call := held()) is not None:
            call(value)

    hook.__torch_unserializable__ = True  # type: ignore[attr-defined]  # else torch warns of it wherever one is saved
    return hook


def _largest_small_matrix(parameters: Sequence[nn.Parameter]) -> int | None:
    """Its place; without a small matrix, that of the largest parameter of at most a million numbers."""
    sizes = [local_of(p.detach()).numel() for p in parameters]  # of a sharded one this process may hold nothing
    fit = [
        (p.dim() > 1 and n <= 20_000, n, -i)
        for i, (p, n) in enumerate(zip(parameters, sizes, strict=True))
        if n <= 10**6
    ]
    return -max(fit)[-1] if fit else None
