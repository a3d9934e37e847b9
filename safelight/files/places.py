"""Where files lie that belong to the user and to no run."""

from __future__ import annotations

import os
from pathlib import Path


def cache_home() -> Path | None:
    """The folder of caches and notes; None of a user who has no home, as in many containers."""
    if chosen := os.environ.get("SAFELIGHT_CACHE"):
        return Path(os.path.expanduser(chosen))
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(base or Path.home() / ".cache") / "safelight"
    except RuntimeError:
        return None
