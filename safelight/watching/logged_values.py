"""Whatever a loop logs, as readings: what is no number costs its own reading, and one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from safelight.words import printable

MAX_NAME_LENGTH, MAX_NAMES, MAX_DEPTH = 200, 4096, 4
LAST_STEP = 2**62


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
