"""What a loop logs and passes, as numbers and tensors: what cannot be used is left out, with one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from safelight.words import printable

MAX_NAME_LENGTH, MAX_NAMES, MAX_DEPTH = 200, 4096, 4
LAST_STEP = 2**62
Report = Callable[[str], None]


class LoggedValues:
    """Turns what is logged into numbers by name. Never raises."""

    def __init__(self, report_once: Callable[[str], None]) -> None:
        """`report_once` is given the same sentence for every value of the same kind."""
        self._report_once = report_once
        self._names: set[str] = set()

    def numbers(self, values: Any) -> dict[str, float]:
        found: dict[str, float] = {}
        if not isinstance(values, Mapping):
            self._report_once(f"Values are logged by name, as a dict: a {type(values).__name__} is left out.")
            return found
        try:
            for name, value in _flat(values, "", 0):
                self._add(found, name, value)
        except Exception as error:  # a mapping that fails while it is read
            self._report_once(f"What was logged cannot be read ({type(error).__name__}) and is left out.")
        return found

    def place(self, step: Any, updates: int) -> int | None:
        """The step that was said, or the next one."""
        if step is None:
            return updates
        try:
            place = int(step)
            if 0 <= place <= LAST_STEP:
                return place
        except Exception:
            place = None
        self._report_once("Values that are logged for a step that is no number, or below 0, are left out.")
        return None

    def _add(self, found: dict[str, float], name: str, value: Any) -> None:
        if len(name) > MAX_NAME_LENGTH:
            self._report_once(f"Values whose names have more than {MAX_NAME_LENGTH} characters are left out.")
            return
        name = printable(name)
        if name not in self._names and len(self._names) >= MAX_NAMES:
            self._report_once(f"More than {MAX_NAMES:,} names are logged: those that come after are left out.")
            return
        try:
            number = _number(value)
        except Exception:
            kind = (
                "a tensor of several numbers, or complex" if isinstance(value, Tensor) else f"a {type(value).__name__}"
            )
            self._report_once(f"Only single real numbers are logged: a value that is {kind} is left out.")
            return
        self._names.add(name)
        found[name] = number


def _flat(values: Mapping[Any, Any], prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    if depth > MAX_DEPTH:
        yield prefix.rstrip("/"), values
        return
    for name, value in list(values.items()):
        path = f"{prefix}{name}" if isinstance(name, str) else f"{prefix}{str(name)[: MAX_NAME_LENGTH + 1]}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}/", depth + 1)
        else:
            yield path, value


def _number(value: Any) -> float:
    """NaN and infinities are numbers, and are counted as such in the record."""
    if isinstance(value, str | bytes) or value is None:
        raise TypeError
    if isinstance(value, Tensor):
        if value.numel() != 1 or value.is_complex():
            raise TypeError
        with torch.no_grad():
            return float(value.detach())
    if getattr(value, "size", 1) != 1:  # an array
        raise TypeError
    return float(value.item() if hasattr(value, "item") else value)


def usable_loss(loss: Any, report_once: Report) -> Tensor | None:
    """A scalar or one real number per sample; None where none was passed."""
    if loss is None:
        return None
    found = _tensor_of(loss, with_lists=True)
    if found is None or found.is_complex() or not found.numel():
        report_once(f"A loss is one number, or one per sample: {_kind(loss)} is left out.")
        return None
    return found


def usable_tensors(passed: Mapping[str, Any], report_once: Report) -> dict[str, Tensor | None]:
    found: dict[str, Tensor | None] = {}
    for name, value in passed.items():
        found[name] = None if value is None else _tensor_of(value)
        if value is not None and found[name] is None:
            report_once(f"{name} is a tensor or an array of numbers: {_kind(value)} is left out.")
    return found


def _tensor_of(value: Any, *, with_lists: bool = False) -> Tensor | None:
    """Detached; None of what holds no numbers, or none that can be read."""
    if isinstance(value, Tensor):
        is_plain = value.layout is torch.strided and not value.is_quantized and not value.is_nested
        return value.detach() if is_plain and value.device.type != "meta" else None
    is_list = isinstance(value, list | tuple)
    if not isinstance(value, int | float | np.ndarray | np.generic) and not (is_list and with_lists):
        return None
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        value = math.inf if value > 0 else -math.inf
    try:
        return torch.as_tensor(value).detach()
    except Exception:  # arrays of objects, of words, and whatever else numpy holds
        return None


def _kind(value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    return f"a tensor of {value.dtype}, {value.layout}, on {value.device}, of shape {tuple(value.shape)}"
