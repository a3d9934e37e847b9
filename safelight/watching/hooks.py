"""What can be seen of a foreign loop without its help: gradients before an update, refusals, timesteps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from safelight.watching.foreign import bare_optimizer, is_compiled, timesteps_among, unwrapped

Guarded = Callable[[Callable[[], None]], None]  # runs a look of ours so that a fault of it stays ours


class Sight:
    """Hooks on the optimizer, on the gradient scaler and on the model; all of them come off again."""

    def __init__(
        self,
        model: nn.Module,
        parameters: Sequence[nn.Parameter],
        optimizer: Any,
        scaler: Any,
        *,
        before_update: Callable[[Sequence[Tensor]], None],
        safely: Guarded,
    ) -> None:
        """`before_update` is given the gradients as the optimizer will see them."""
        self.follows_updates = optimizer is not None
        self.norms: Tensor | None = None  # [parameters] of the update since the last `clear`
        self.skipped = False  # whether a scaler kept the optimizer from it
        self.scale: Tensor | None = None
        self.lr: float | None = None  # not known before the first update
        self.t: Tensor | None = None  # of the last forward pass with gradients
        self._parameters, self._before_update, self._safely = list(parameters), before_update, safely
        self._undo: list[Callable[[], None]] = []
        if optimizer is not None:
            bare = bare_optimizer(optimizer)
            self._undo.append(bare.register_step_pre_hook(self._before_step).remove)
            if (scaler := scaler or getattr(optimizer, "scaler", None)) is not None:  # accelerate's has one
                self._look_at_refusals(scaler, bare)
        if not is_compiled(model):  # a hook would be compiled with it, and might change its arithmetic
            handle = unwrapped(model).register_forward_pre_hook(self._look_at_inputs, with_kwargs=True)
            self._undo.append(handle.remove)

    def clear(self) -> None:
        """Before the next update."""
        self.norms, self.skipped = None, False

    def close(self) -> None:
        for undo in self._undo:
            undo()
        self._undo = []

    def _before_step(self, optimizer: torch.optim.Optimizer, inputs: Any, named: dict[str, Any]) -> Any:
        """Gradients are there when the step begins, or, where it is given a closure, when that has been called."""
        closure = named.get("closure", inputs[1] if len(inputs) > 1 else None)
        if closure is None:
            self._safely(lambda: self._look(optimizer))
            return None

        def seen() -> Any:
            result = closure()
            self._safely(lambda: self._look(optimizer))
            return result

        if "closure" in named:
            return inputs, named | {"closure": seen}
        return (inputs[0], seen, *inputs[2:]), named

    @torch.no_grad()
    def _look(self, optimizer: torch.optim.Optimizer) -> None:
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self._parameters]
        norms = torch.stack(torch._foreach_norm(gradients)).float()
        scale = getattr(optimizer, "grad_scale", None)  # fused optimizers unscale by themselves, later
        self.norms = norms / scale if isinstance(scale, Tensor) else norms
        self.lr = float(optimizer.param_groups[0]["lr"])
        self._before_update(gradients)

    def _look_at_refusals(self, scaler: Any, optimizer: torch.optim.Optimizer) -> None:
        """A scaler that found infinities does not call the optimizer, so its hook is silent. That the scaler was asked
        and the optimizer not is known to the host: nothing waits for a device."""
        step = scaler.step

        def seen(chosen: Any, *arguments: Any, **named: Any) -> Any:
            result = step(chosen, *arguments, **named)
            if chosen is optimizer:
                self.skipped = self.norms is None
                scale = getattr(scaler, "_scale", None)
                self.scale = scale.detach().clone() if isinstance(scale, Tensor) else None
            return result

        scaler.step = seen
        self._undo.append(lambda: delattr(scaler, "step"))

    def _look_at_inputs(self, _: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        if torch.is_grad_enabled():  # not of samples that are drawn meanwhile
            self._safely(lambda: setattr(self, "t", timesteps_among(inputs, named)))
