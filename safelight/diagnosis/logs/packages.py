"""Formats that only another package reads, and what to say where it is not installed."""

from __future__ import annotations

from pathlib import Path

from safelight.errors import UsageError


class MissingPackage(UsageError):
    """The log may be healthy; nothing is known of it yet."""

    def __init__(self, path: Path, owner: str, extra: str) -> None:
        super().__init__(f"{path} is {owner}'s. To read it, install its package: pip install 'safelight[{extra}]'")
