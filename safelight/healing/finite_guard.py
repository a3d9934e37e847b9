"""The NaN guard for any loop: updates that are not finite are refused, counted and traced to the first module."""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from safelight.errors import Stopped, UsageError
from safelight.monitors.finite import LOWEST_SCALE, NonfiniteSearch, all_finite, nonfinite_weights, report_refusal
from safelight.monitors.hook_table import hook_before_call, is_traced
from safelight.monitors.parameters import unwrapped
from safelight.probes.random_state import kept_random_state
from safelight.words import print_to_stderr

MOST_CALLS = 64  # of the model in one update, kept for a replay: micro-batches


@dataclass(frozen=True, slots=True)
class _Call:
    """What a model was called with, by reference."""

    positional: tuple[Any, ...]
    named: dict[str, Any]
    autocast: torch.dtype | None

    def repeat(self, model: nn.Module, device: torch.device) -> object:
        with torch.autocast(device.type, self.autocast, enabled=self.autocast is not None):
            return model(*self.positional, **self.named)


class FiniteGuard:
    """Makes the optimizer's step only where loss and gradients are finite: `if guard.step(loss): ...` in place of
    `optimizer.step()`, after `backward()` and after clipping.

    A refused update leaves weights, moments and counters as they were, drops the gradients, and says in which module
    the first NaN or Inf appeared, found by calling the model once more. Too many in a row raise `Stopped`."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        scaler: torch.amp.GradScaler | None = None,
        max_refused: int = 8,
        say: Callable[[str], None] = print_to_stderr,
    ) -> None:
        """`scaler`: of a loop in fp16; its `step` and `update` are called by the guard. An overflow of its scale is
        refused and counted, but is not a fault. `max_refused`: faults in a row that end the training."""
        if max_refused < 1:
            raise UsageError(f"max_refused is {max_refused}, but it must be at least 1.")
        self._model, self._optimizer, self._scaler = model, optimizer, scaler
        self._max_refused, self._say = max_refused, say
        self.refused = 0  # updates, overflows among them
        self.refused_in_row = 0  # without overflows
        self.first_nonfinite: str | None = None  # of the last fault, in words
        first = next(model.parameters(), None)
        self._device = torch.device("cpu") if first is None else first.device
        calls: deque[_Call] = deque(maxlen=MOST_CALLS)
        self._calls = calls

        def keep(_: nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
            if torch.is_grad_enabled() and not is_traced():
                kind = device_type_of(positional, named)
                is_on = torch.is_autocast_enabled(kind)
                calls.append(_Call(positional, named, torch.get_autocast_dtype(kind) if is_on else None))

        weakref.finalize(self, hook_before_call(model, keep))

    def __repr__(self) -> str:
        return f"FiniteGuard(refused={self.refused}, first_nonfinite={self.first_nonfinite!r})"

    def step(self, loss: Tensor | float) -> bool:
        """Whether the update was made. Waits for the device, which every loop does that prints its loss."""
        loss = torch.as_tensor(loss).detach()
        gradients = [p.grad for group in self._optimizer.param_groups for p in group["params"] if p.grad is not None]
        if not gradients:
            raise UsageError("No parameter of the optimizer has a gradient. Call guard.step after loss.backward().")
        finite = all_finite(gradients)
        if self._agreed(finite & loss.isfinite().all().to(finite.device)):
            self._update()
            self.refused_in_row = 0
        else:
            self._refuse(loss)
            finite = None
        self._calls.clear()
        return finite is not None

    def _agreed(self, finite: Tensor) -> bool:
        """All processes of DDP or none: weights must stay the same on all of them."""
        if isinstance(self._model, nn.parallel.DistributedDataParallel):
            flag = finite.to(torch.int32)
            torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MIN)
            return bool(flag)
        return bool(finite)

    def _update(self) -> None:
        if self._scaler is None:
            self._optimizer.step()
        else:
            self._scaler.step(self._optimizer)
            self._scaler.update()

    def _refuse(self, loss: Tensor) -> None:
        self.refused += 1
        overflow = self._is_overflow(loss)
        where = None if overflow else self._find(loss)
        self._drop()
        if where is None:
            return
        self.refused_in_row += 1
        self.first_nonfinite = where
        report_refusal(self._optimizer, where)
        if self.refused_in_row >= self._max_refused:
            raise Stopped(
                f"{self.refused_in_row} updates in a row were not finite. The first non-finite value appeared in "
                f"{where}. The weights are those from before. The usual fixes: a lower learning rate, a longer warmup, "
                "gradient clipping, bf16 instead of fp16.",
                finding=f"non-finite: {where}",
            )
        self._say(f"An update was refused: it was not finite. The first non-finite value appeared in {where}.")

    def _is_overflow(self, loss: Tensor) -> bool:
        active = self._scaler is not None and self._scaler.is_enabled()
        return active and bool(loss.isfinite().all()) and self._scaler.get_scale() > LOWEST_SCALE  # type: ignore[union-attr]

    def _drop(self) -> None:
        """The gradients; the scaler records its overflow and makes a step that has nothing to move."""
        if self._scaler is not None and self._scaler.is_enabled():
            with contextlib.suppress(RuntimeError):  # done by the loop, before it clipped
                self._scaler.unscale_(self._optimizer)
        self._optimizer.zero_grad(set_to_none=True)
        if self._scaler is not None:
            self._scaler.step(self._optimizer)
            self._scaler.update()

    def _find(self, loss: Tensor) -> str:
        """The weights are those of the step, so a second call of the model repeats it, but for dropout."""
        model = unwrapped(self._model)
        named = list(model.named_parameters())
        if found := nonfinite_weights(named) or self._replay(model):
            return found
        if not loss.isfinite().all():
            return "the loss: every output of the model was finite when it was called again"
        bad = [name for name, p in named if p.grad is not None and not p.grad.isfinite().all()]
        more = f" (and {len(bad) - 1} more: those before it)" if len(bad) > 1 else ""
        return f"the gradient of {bad[-1]}{more}" if bad else "a gradient that is not of the model, or another process"

    def _replay(self, model: nn.Module) -> str | None:
        buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
        try:
            with torch.no_grad(), kept_random_state(self._device), NonfiniteSearch(model) as search:
                for call in self._calls:
                    search.check("the input of the model", (call.positional, call.named))
                    search.check("the output of the model", call.repeat(model, self._device))
                return search.found
        except Exception as error:  # a model that cannot be called twice must not end the training
            self._say(f"The model could not be called again to find where it began: {error}")
            return None
        finally:
            with torch.no_grad():
                for buffer, value in buffers:
                    buffer.copy_(value)

    def state_dict(self) -> dict[str, Any]:
        return {"refused": self.refused, "refused_in_row": self.refused_in_row}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if not all(isinstance(state.get(name), int) for name in ("refused", "refused_in_row")):
            raise UsageError(f"This is not the state of a FiniteGuard: it has {sorted(map(str, state))[:6]}.")
        self.refused, self.refused_in_row = state["refused"], state["refused_in_row"]


def device_type_of(positional: tuple[Any, ...], named: dict[str, Any]) -> str:
    found = next((each for each in (*positional, *named.values()) if isinstance(each, Tensor)), None)
    return "cpu" if found is None else found.device.type
