"""Functions of torch that are wrapped while a capture is on: each is put back at the end."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

MISSING = object()


class Patches:
    """Replacements of attributes; `restore` puts back those that are still ours."""

    def __init__(self) -> None:
        self._made: list[tuple[Any, str, Any, Any]] = []

    def wrap(self, owner: Any, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Any:
        """`around` gets the function and returns what is called instead."""
        original = vars(owner).get(name, MISSING)
        function = getattr(owner, name)
        replacement = functools.wraps(function)(around(function))
        setattr(owner, name, replacement)
        self._made.append((owner, name, original, replacement))
        return replacement

    def wrap_everywhere(
        self, owner: Any, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> None:
        """Also where modules that are loaded already have imported it by name."""
        function = getattr(owner, name)
        replacement = self.wrap(owner, name, around)
        for module in list(sys.modules.values()):
            held = getattr(module, "__dict__", {})
            if module is not owner and isinstance(held, dict) and held.get(name) is function:
                held[name] = replacement
                self._made.append((module, name, function, replacement))

    def restore(self) -> None:
        while self._made:
            owner, name, original, replacement = self._made.pop()
            if vars(owner).get(name) is not replacement:
                continue  # somebody wrapped it again, and still calls ours, which does nothing any more
            if original is MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
