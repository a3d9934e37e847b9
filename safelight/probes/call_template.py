"""How a network is called: a call of the loop whose samples can be replaced by others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from safelight.probes.forward_pass import Call

Key = int | str  # of an input: its place, or its name


class NotMeasurable(Exception):
    """Why a loop cannot be measured, in words."""


class CallTemplate:
    """Holds nothing of the samples that it was made from."""

    def __init__(self, call: Call) -> None:
        given = _inputs(call)
        x, t = call.x, call.t
        if x is None or t is None:
            raise NotMeasurable("the model is not called with a timestep for each sample")
        for key, value in given.items():
            if not isinstance(value, Tensor) and _holds_tensor(value):
                raise NotMeasurable(f"the model is called with tensors inside of {_named(key)}")
        self._x, self._t = (next(key for key, value in given.items() if value is each) for each in (x, t))
        self.shape, self.batch_size, self.device = tuple(x.shape[1:]), len(x), x.device
        self._kind, self._time_kind = x.dtype, t.dtype
        self.extras = tuple(key for key in given if key not in (self._x, self._t) and _is_of_samples(given[key], x))
        """Inputs with an entry for each sample, such as labels."""
        emptied = {key: None if key in (self._x, self._t, *self.extras) else each for key, each in given.items()}
        self._call = replace(_with_inputs(call, emptied), output=None, random=None)

    def names(self) -> str:
        """The names of the extras."""
        return ", ".join(map(_named, self.extras))

    def extras_of(self, call: Call) -> dict[Key, Tensor] | None:
        """Those of another call; None if it has others."""
        given = _inputs(call)
        fits = call.x is not None and all(_is_of_samples(given.get(key), call.x) for key in self.extras)
        return {key: given[key] for key in self.extras} if fits else None

    def fill(self, x: Tensor, t: Tensor, extras: Mapping[Key, Tensor]) -> Call:
        """The call for other samples, moved to where the model is."""
        given = _inputs(self._call)
        given[self._x] = x.reshape(-1, *self.shape).to(self.device, self._kind)
        given[self._t] = t.to(self.device, self._time_kind)
        return _with_inputs(self._call, given | {key: value.to(self.device) for key, value in extras.items()})


def _inputs(call: Call) -> dict[Key, Any]:
    return {**dict(enumerate(call.inputs)), **call.named}


def _with_inputs(call: Call, given: Mapping[Key, Any]) -> Call:
    inputs = tuple(given[place] for place in range(len(call.inputs)))
    return replace(call, inputs=inputs, named={name: given[name] for name in call.named})


def _is_of_samples(value: Any, x: Tensor) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0 and len(value) == len(x)


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_tensor, value.values()))
    return isinstance(value, Tensor) or (isinstance(value, list | tuple) and any(map(_holds_tensor, value)))


def _named(key: Key) -> str:
    return f"input {key + 1}" if isinstance(key, int) else f"`{key}`"
