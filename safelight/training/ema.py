"""EMA of the weights: fp32 shadows of the parameters, in our trainer and as a part for any loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from safelight.checkpoints.ema_profiles import power_exponent, profile_name
from safelight.config.check import MAX_EMA_WIDTH, MIN_EMA_WIDTH
from safelight.config.tree import Ema
from safelight.errors import UsageError
from safelight.monitors.parameters import trainable_parameters, unwrapped
from safelight.words import with_article

MAIN_EMA = "main"  # the EMA that samples are drawn from


def power_decay(width: float, step: int) -> float:
    """β after `step` updates: 0 at the first one, so the initial weights never enter the average."""
    return (1 - 1 / step) ** (power_exponent(width) + 1)


def exponential_decay(decay: float, step: int) -> float:
    """A decay that grows with the run: after 30 steps 0.3 % of the initial weights are left."""
    return min(decay, 1 - (1 + step) ** -0.75)


def ema_names(settings: Ema) -> list[str]:
    """The averages that are kept: the main one, and the snapshot profiles that differ from it."""
    profiles = [profile_name(width) for width in settings.profiles] if settings.snapshots else []
    main = profile_name(settings.width) if settings.kind == "power" else None
    return [MAIN_EMA, *(name for name in profiles if name != main)]


def _shadow(weight: Tensor) -> Tensor:
    """In fp32 for half precision: a step of 1e-4 would be rounded away there, for ever."""
    return weight.detach().to(torch.promote_types(weight.dtype, torch.float32), copy=True)


class EmaWeights:
    """The main average and the snapshot profiles; a function of the step and the weights it was shown."""

    def __init__(
        self, settings: Ema, model: nn.Module, named_parameters: Sequence[tuple[str, nn.Parameter]] | None = None
    ) -> None:
        """`named_parameters`: what stands for the trained parameters of the model, where that is not they
        themselves."""
        self.settings = settings
        named_parameters = trainable_parameters(model) if named_parameters is None else named_parameters
        self.names = [name for name, _ in named_parameters]
        self._parameters: list[Tensor] = [p for _, p in named_parameters]
        self.shadows = {ema_name: [_shadow(p) for p in self._parameters] for ema_name in ema_names(settings)}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """After the optimizer's update number `step` (from 1). The shadows never alias the live weights."""
        live = [p.to(s.dtype) for p, s in zip(self._parameters, self.shadows[MAIN_EMA], strict=True)]  # no copy of fp32
        for ema_name, shadow in self.shadows.items():
            torch._foreach_lerp_(shadow, live, 1 - self.decay(ema_name, step))

    def rebind_parameters(self, model: nn.Module) -> None:
        """Takes the parameters of the model anew if `model.to` or an assignment has moved or replaced them."""
        first = self._parameters[0]
        if model.get_parameter(self.names[0]) is first and self.shadows[MAIN_EMA][0].device == first.device:
            return
        self._parameters = [model.get_parameter(name) for name in self.names]
        for ema_name, shadow in self.shadows.items():
            self.shadows[ema_name] = [s.to(p.device) for s, p in zip(shadow, self._parameters, strict=True)]

    def decay(self, ema_name: str, step: int) -> float:
        if ema_name == MAIN_EMA and self.settings.kind == "exponential":
            decay = self.settings.decay
            return exponential_decay(decay, step) if self.settings.warmup else decay
        return power_decay(self.settings.width if ema_name == MAIN_EMA else float(ema_name), step)

    def tensors(self, ema_name: str = MAIN_EMA) -> dict[str, Tensor]:
        """The average by parameter name, ready for `torch.func.functional_call`."""
        return dict(zip(self.names, self.shadows[ema_name], strict=True))

    def profile(self, width: float) -> dict[str, Tensor]:
        """The EMA of a snapshot profile, which may be the main one."""
        name = profile_name(width)
        return self.tensors(name if name in self.shadows else MAIN_EMA)

    @torch.no_grad()
    def load(self, ema_name: str, tensors: Mapping[str, Tensor]) -> None:
        for name, shadow in zip(self.names, self.shadows[ema_name], strict=True):
            shadow.copy_(tensors[name])


class EMA:
    """An exponential moving average of the weights, for any PyTorch loop: call `update()` after every optimizer step.

    The decay warms up by itself, so that a short run is not mostly initialisation. Averages are fp32 also where the
    model is fp16 or bf16; buffers are copied, frozen parameters left out. The model may be wrapped by DDP or
    torch.compile: names are those of the module inside."""

    def __init__(
        self, model: nn.Module, decay: float = 0.9999, *, warmup: bool = True, width: float | None = None
    ) -> None:
        """`width`: instead of a decay, the relative width of a power-function average, such as 0.1."""
        if not 0 <= decay < 1 or (width is not None and not MIN_EMA_WIDTH <= width <= MAX_EMA_WIDTH):
            widths = f"width between {MIN_EMA_WIDTH} and {MAX_EMA_WIDTH} (is {width})"
            allowed = f"decay lies between 0 and 1 (is {decay}), {widths}."
            raise UsageError(f"An EMA cannot be made of these: {allowed}")
        if not isinstance(model, nn.Module):
            raise UsageError(
                f"An EMA is made of a model, and this is {with_article(type(model).__name__)}: EMA(model)."
            )
        self._model = unwrapped(model)
        kind = "exponential" if width is None else "power"
        settings = Ema(kind=kind, decay=decay, warmup=warmup, width=width or 0.1, snapshots=0)
        self._average = EmaWeights(settings, self._model)
        if not self._average.names:
            raise UsageError("The model has no parameter that is trained (requires_grad): there is nothing to average.")
        self._buffers = {name: buffer.detach().clone() for name, buffer in self._model.named_buffers()}
        self.updates = 0
        self._swapped = 0

    def __repr__(self) -> str:
        return f"EMA(updates={self.updates}, next_decay={self.decay:g})"

    @property
    def decay(self) -> float:
        """The decay that the next update will have."""
        return self._average.decay(MAIN_EMA, self.updates + 1)

    @property
    def shadow_params(self) -> list[Tensor]:
        """The averages, in the order of the trained parameters."""
        return self._average.shadows[MAIN_EMA]

    @torch.no_grad()
    def update(self) -> None:
        """Moves the average towards the weights as they are now. No host sync."""
        if self._swapped:
            raise UsageError("EMA.update() was called inside `with ema.swapped(...)`: the average would follow itself.")
        self._average.rebind_parameters(self._model)
        self.updates += 1
        self._average.update(self.updates)
        for name, buffer in self._model.named_buffers() if self._buffers else ():
            self._buffers[name] = buffer.detach().clone()

    @torch.no_grad()
    def copy_to(self, model: nn.Module) -> None:
        """Puts the averages and buffers into a model with the same parameters, for good: one to sample from or save."""
        for target, value in self._pairs(model):
            target.copy_(value)

    @contextmanager
    def swapped(self, model: nn.Module | None = None) -> Iterator[None]:
        """Inside, the model has the averaged weights; afterwards its own again, to the bit, whatever happened."""
        with torch.no_grad():
            pairs = self._pairs(self._model if model is None else model)
            kept = [(target, target.detach().clone()) for target, _ in pairs]
            self._swapped += 1
        try:
            with torch.no_grad():
                for target, value in pairs:
                    target.copy_(value)
            yield
        finally:
            self._swapped -= 1
            with torch.no_grad():
                for target, value in kept:
                    target.copy_(value)

    def _pairs(self, model: nn.Module) -> list[tuple[Tensor, Tensor]]:
        """What is written over in a model, and with what."""
        model = unwrapped(model)
        weights, buffers = dict(model.named_parameters()), dict(model.named_buffers())
        _check_fits(weights, self._average.tensors(), "The model")
        return [(weights[name], value) for name, value in self._average.tensors().items()] + [
            (buffers[name], value) for name, value in self._buffers.items() if name in buffers
        ]

    def state_dict(self) -> dict[str, Any]:
        """Tensors are those of the EMA itself: clone them to keep them over the next update."""
        return {"updates": self.updates, "weights": self._average.tensors(), "buffers": dict(self._buffers)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing is touched where it does not fit."""
        if not isinstance(state.get("updates"), int) or not isinstance(state.get("weights"), Mapping):
            raise UsageError(f"This is not the state of an EMA: it has {sorted(map(str, state))[:6]}.")
        _check_fits(state["weights"], self._average.tensors(), "The state")
        self._average.rebind_parameters(self._model)
        self._average.load(MAIN_EMA, state["weights"])
        current = dict(self._model.named_buffers())
        self._buffers |= {n: b.to(current[n].device, copy=True) for n, b in state["buffers"].items() if n in current}
        self.updates = state["updates"]


def _check_fits(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], what: str) -> None:
    wrong = [name for name, value in wanted.items() if name not in found or found[name].shape != value.shape]
    if wrong:
        raise UsageError(
            f"{what} does not fit the EMA: {len(wrong)} of {len(wanted)} parameters are missing or have another shape, "
            f"for example {wrong[0]!r}."
        )
