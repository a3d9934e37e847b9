"""Functions of torch that are wrapped while a capture is on: each is put back at the end."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

MISSING, MARK = object(), "__safelight__"


def weakly(method: Callable[..., Any]) -> Callable[..., Any]:
    """A hook that does not keep its object alive: what torch holds, it holds for ever."""
    held = weakref.WeakMethod(method)

    def hook(*given: Any, **named: Any) -> Any:
        return None if (call := held()) is None else call(*given, **named)

    return hook


def is_wrapped(owner: Any, name: str) -> bool:
    """By a capture, which is still on or was left."""
    return getattr(vars(owner).get(name), MARK, None) is not None


class Patches:
    """Replacements of attributes; `restore` puts back those that are still ours."""

    def __init__(self) -> None:
        self._made: list[tuple[Any, str, Any, Any]] = []

    def wrap(self, owner: Any, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """`method` is called with the function and its arguments instead of it, as long as its object lives."""
        original, function, held = vars(owner).get(name, MISSING), getattr(owner, name), weakref.WeakMethod(method)

        @functools.wraps(function)
        def replacement(*given: Any, **named: Any) -> Any:
            call = held()
            return function(*given, **named) if call is None else call(function, *given, **named)

        setattr(replacement, MARK, True)
        setattr(owner, name, replacement)
        self._made.append((owner, name, original, replacement))
        return replacement

    def wrap_everywhere(self, owner: Any, name: str, method: Callable[..., Any]) -> None:
        """Also where modules that are loaded already have imported it by name."""
        function = getattr(owner, name)
        replacement = self.wrap(owner, name, method)
        for module in list(sys.modules.values()):
            held = getattr(module, "__dict__", None)
            if module is not owner and type(held) is dict and held.get(name) is function:
                held[name] = replacement
                self._made.append((module, name, function, replacement))

    def restore(self) -> None:
        while self._made:
            owner, name, original, replacement = self._made.pop()
            if vars(owner).get(name) is not replacement:
                continue  # somebody wrapped it again, and still calls ours, which then does nothing
            if original is MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
