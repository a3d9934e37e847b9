"""The watch on anyone's training loop: it looks through hooks, writes a record, and touches nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safelight.watching.loop import Watch as Watch
    from safelight.watching.opening import watch as watch


def __getattr__(name: str) -> Any:
    """Torch is imported only with the watch itself: `safelight run` starts scripts without it."""
    if name not in ("Watch", "watch"):
        raise AttributeError(f"module 'safelight.watching' has no attribute {name!r}")
    from safelight.watching import loop, opening

    return getattr(loop if name == "Watch" else opening, name)
