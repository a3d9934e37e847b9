"""What a watch says of a loop while it runs: each sentence once."""

from __future__ import annotations

from collections.abc import Callable


class WarnOnce:
    """Shared by the parts of a watch."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._made: set[str] = set()

    def once(self, text: str) -> None:
        if self.is_new(text):
            self._say(f"Safelight's watch: {text}")

    def is_new(self, what: str) -> bool:
        """Asked for the first time."""
        known = what in self._made
        self._made.add(what)
        return not known
