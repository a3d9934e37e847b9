"""What can be seen of a foreign loop without its help: gradients before an update, and refusals."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from safelight.monitors import finite
from safelight.monitors.parameters import ReadNorms, norms_of
from safelight.monitors.reading_buffer import PendingReading
from safelight.monitors.shards import local_of
from safelight.observing.observer import UpdateStats
from safelight.vocabulary import LOSS_SCALE, REFUSED
from safelight.watching.foreign import bare_optimizer

Guarded = Callable[[Callable[[], None]], None]  # runs a measurement of ours so that a fault of it stays ours


class OptimizerHooks:
    """Hooks on the optimizer and on the gradient scaler; all of them come off again."""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        optimizer: Any,
        scaler: Any,
        *,
        before_update: Callable[[Callable[[], list[Tensor]]], None],
        safely: Guarded,
        on_refused: Callable[[str], None] = lambda where: None,
    ) -> None:
        """`before_update` is given a way to the gradients as the optimizer will see them; `on_refused` the place that
        a FiniteGuard names."""
        self.follows_updates = optimizer is not None
        self.norms: Tensor | None = None  # [parameters] of the update since the last `clear`
        self.refused: Tensor | None = None  # 1 where a fused optimizer will skip the update on the device
        self.skipped = False  # whether a scaler or a guard kept the optimizer from it
        self.scale: Tensor | None = None
        self.lr: float | Tensor | None = None  # not known before the first update
        self._parameters, self._before_update, self._safely = list(parameters), before_update, safely
        self._on_refused = on_refused
        self._read_norms = ReadNorms([local_of(parameter.detach()).numel() for parameter in self._parameters])
        self._undo: list[Callable[[], None]] = []
        if optimizer is not None:
            bare = bare_optimizer(optimizer)
            self._undo.append(bare.register_step_pre_hook(self._before_step).remove)
            self._undo.append(finite.on_refusal(bare, self._count_refusal))
            if (scaler := scaler or getattr(optimizer, "scaler", None)) is not None:  # accelerate's has one
                with suppress(AttributeError, TypeError):  # one that lets nothing be hung on it is not counted
                    self._count_refusals(scaler, bare)

    def clear(self) -> None:
        """Before the next update."""
        self.norms, self.refused, self.skipped = None, None, False

    def update(
        self, losses: Tensor, t: Tensor | None, read_ema: Callable[[], Sequence[Tensor] | None] = lambda: None
    ) -> UpdateStats | None:
        """The update since the last `clear`, if there was one; `losses`: one for each sample."""
        norms = self.norms
        if norms is None:
            return None
        device = norms.device
        zero, one, limit = _constants(device)
        return UpdateStats(
            loss=losses.to(device),
            t=None if t is None else t.to(device),
            norms=norms,
            norm=torch.linalg.vector_norm(norms),
            limit=limit,
            scale=one if self.scale is None else self.scale.to(device),
            refused=zero if self.refused is None else self.refused.to(device),
            ema=read_ema(),
        )

    def skipped_reading(self) -> PendingReading:
        """Of an update that a scaler kept the optimizer from."""
        if self.scale is None:
            return PendingReading((), lambda: {REFUSED.name: 1.0})
        scale = self.scale.reshape(1)
        return PendingReading((scale,), lambda scale: {REFUSED.name: 1.0, LOSS_SCALE.name: float(scale[0])})

    def close(self) -> None:
        undo, self._undo = self._undo, []
        for each in undo:
            each()

    def _before_step(self, optimizer: torch.optim.Optimizer, inputs: Any, named: dict[str, Any]) -> Any:
        """Gradients are there when the step begins, or, where it is given a closure, when that has been called."""
        closure = named.get("closure", inputs[1] if len(inputs) > 1 else None)
        if closure is None:
            self._safely(lambda: self._measure(optimizer))
            return None

        def measured_closure() -> Any:
            result = closure()
            self._safely(lambda: self._measure(optimizer))
            return result

        if "closure" in named:
            return inputs, named | {"closure": measured_closure}
        return (inputs[0], measured_closure, *inputs[2:]), named

    @torch.no_grad()
    def _measure(self, optimizer: torch.optim.Optimizer) -> None:
        norms = self._norms()
        scale = getattr(optimizer, "grad_scale", None)  # fused optimizers unscale by themselves, later
        self.norms = norms / scale.to(norms.device) if isinstance(scale, Tensor) else norms
        skips = getattr(optimizer, "found_inf", None)
        self.refused = skips.detach().clone() if isinstance(skips, Tensor) else None
        rate = optimizer.param_groups[0]["lr"]  # a tensor for some optimizers: reading it would wait for the device
        self.lr = rate.detach().clone() if isinstance(rate, Tensor) else float(rate)
        self._before_update(self._gradients)

    def _norms(self) -> Tensor:
        """[parameters]; what has no gradient has a norm of 0, and costs no memory."""
        gradients = [p.grad for p in self._parameters]
        if set(map(type, gradients)) == {Tensor}:  # all are there and whole: at nearly every step
            return self._read_norms.of(gradients)  # type: ignore[arg-type]
        found = [local_of(gradient) for gradient in gradients if gradient is not None]
        if not found:
            return torch.zeros(len(self._parameters), device=self._parameters[0].device)
        norms = norms_of(found)
        if len(found) == len(self._parameters):
            return norms
        each_norm, zero = iter(norms.unbind()), norms.new_zeros(())
        return torch.stack([zero if p.grad is None else next(each_norm) for p in self._parameters])

    def _gradients(self) -> list[Tensor]:
        return [local_of(p.grad) if p.grad is not None else torch.zeros_like(local_of(p)) for p in self._parameters]

    def _count_refusal(self, where: str) -> None:
        self.skipped = True
        self._safely(lambda: self._on_refused(where))

    def _count_refusals(self, scaler: Any, optimizer: torch.optim.Optimizer) -> None:
        """A scaler that found infinities does not call the optimizer, so its hook is silent. That the scaler was called
        and the optimizer not is known to the host: nothing waits for a device."""
        step, before = scaler.step, vars(scaler).get("step")

        def count(chosen: Any) -> None:
            if chosen is optimizer and self._undo:
                self.skipped = self.norms is None
                scale = getattr(scaler, "_scale", None)
                self.scale = scale.detach().clone() if isinstance(scale, Tensor) else None

        counted_step = _CountedStep(scaler, step, count)

        def restore() -> None:
            if vars(scaler).get("step") is not counted_step:
                return  # somebody hung another one over it, which still calls this one: it does nothing any more
            if before is None:
                del scaler.step
            else:
                scaler.step = before

        scaler.step = counted_step
        self._undo.append(restore)


@functools.lru_cache(maxsize=4)
def _constants(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Zero, one, and no limit; nobody writes to them."""
    zero, one, limit = torch.tensor([0.0, 1.0, torch.inf], device=device).unbind()
    return zero, one, limit


class _CountedStep:
    """`scaler.step`, and a count of it. In a copy or a pickle of the scaler it is the method of its class again."""

    def __init__(self, scaler: Any, step: Callable[..., Any], count: Callable[[Any], None]) -> None:
        self._scaler, self._step, self._count = scaler, step, count

    def __call__(self, optimizer: Any, *arguments: Any, **named: Any) -> Any:
        result = self._step(optimizer, *arguments, **named)
        self._count(optimizer)
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial, (type(self._scaler).step, self._scaler)
