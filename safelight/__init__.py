"""Safelight trains diffusion models and keeps watch over the training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Config", "Run", "open", "resume", "train", "watch"]

if TYPE_CHECKING:
    from safelight.config import Config
    from safelight.library import open, resume, train
    from safelight.session import Run
    from safelight.watching import watch

_HOMES = {
    "Config": "safelight.config",
    "Run": "safelight.session",
    "open": "safelight.library",
    "resume": "safelight.library",
    "train": "safelight.library",
    "watch": "safelight.watching",
}


def __getattr__(name: str) -> Any:
    """Torch is imported only when something that needs it is asked for, so that `--help` answers at once."""
    if name not in _HOMES:
        raise AttributeError(f"module 'safelight' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
