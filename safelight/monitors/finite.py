"""Where the first value appears that is not finite: in a tensor, in the weights, in a pass through a network."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from safelight.errors import Stopped

LOWEST_SCALE = 2.0**-4  # of a loss in fp16: what overflows even so is no overflow of the scale


def check_finite(tensor: Tensor, name: str = "the tensor") -> Tensor:
    """The same tensor, or an error that counts what is NaN or infinite in it and says where it begins. Waits for the
    device."""
    values = tensor.detach()
    bad = ~values.isfinite()
    if not bad.any():
        return tensor
    first = tuple(bad.nonzero()[0].tolist())
    good = values[~bad].float()
    between = f"from {float(good.min()):.4g} to {float(good.max()):.4g}" if len(good) else "there are none"
    raise Stopped(
        f"{name} is not finite: {int(values.isnan().sum()):,} NaN and {int(values.isinf().sum()):,} Inf among "
        f"{values.numel():,} values of shape {tuple(values.shape)}, the first at {first}. Finite values: {between}.",
        finding=f"non-finite: {name}",
    )


# Weak on both sides: a listener that knows its optimizer would keep it, and be kept by it, for ever.
_listeners: weakref.WeakKeyDictionary[Any, list[weakref.WeakMethod[Callable[[str], None]]]] = (
    weakref.WeakKeyDictionary()
)


def on_refusal(optimizer: Any, listener: Callable[[str], None]) -> Callable[[], None]:
    """Calls `listener`, a method of an object that somebody else keeps, with the place of the first value that is not
    finite, where a guard refuses an update of this optimizer. Returns what ends that."""
    listeners, method = _listeners.setdefault(optimizer, []), weakref.WeakMethod(listener)
    listeners.append(method)
    return lambda: listeners.remove(method)


def report_refusal(optimizer: Any, where: str) -> None:
    for each in (optimizer, getattr(optimizer, "optimizer", None)):  # accelerate wraps it
        for method in tuple(_listeners.get(each, ()) if each is not None else ()):
            if (listener := method()) is not None:
                listener(where)


def all_finite(tensors: Iterable[Tensor]) -> Tensor:
    """One bool on the device, exact: the largest of each tensor is looked at, and no square can overflow."""
    dense = [each.coalesce().values() if each.is_sparse else each for each in tensors]
    dense = [each for each in dense if each.numel()]
    if not dense:
        return torch.tensor(True)
    largest = torch._foreach_norm(dense, torch.inf)
    return torch.stack([each.isfinite().to(largest[0].device) for each in largest]).all()


def nonfinite_weights(named_parameters: Iterable[tuple[str, Tensor]]) -> str | None:
    for name, parameter in named_parameters:
        if not parameter.isfinite().all():
            return f"the weights of {name}"
    return None


class NonfiniteSearch:
    """While active, every output and gradient of a network is checked on the host: slow, for replays only."""

    def __init__(self, model: nn.Module) -> None:
        self.found: str | None = None
        self._model, self._hooks = model, list[RemovableHandle]()

    def check(self, name: str, value: object) -> None:
        """Remembers the first that is not finite."""
        if self.found is None and any(not each.isfinite().all() for each in tensors_in(value)):
            self.found = name

    def __enter__(self) -> NonfiniteSearch:
        modules = [(n or "the model", m) for n, m in self._model.named_modules() if not list(m.children())]
        weights = [(name, weight) for name, weight in self._model.named_parameters() if weight.requires_grad]
        self._hooks = [module.register_forward_hook(partial(self._output, name)) for name, module in modules]
        self._hooks += [each.register_post_accumulate_grad_hook(partial(self._gradient, n)) for n, each in weights]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _output(self, name: str, _: nn.Module, __: object, output: object) -> None:
        self.check(f"the output of {name}", output)

    def _gradient(self, name: str, parameter: Tensor) -> None:
        self.check(f"the gradient of {name}", parameter.grad)


def tensors_in(value: Any) -> list[Tensor]:
    """Those of floating point, in whatever a module takes or returns."""
    if isinstance(value, Tensor):
        return [value.detach()] if value.is_floating_point() or value.is_complex() else []
    if isinstance(value, Mapping):
        return [each for inner in value.values() for each in tensors_in(inner)]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [each for inner in value for each in tensors_in(inner)]
    return []
