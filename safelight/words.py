"""Small things put into words, the same everywhere: sizes, and names that may be no text."""

from __future__ import annotations


def in_bytes(count: float) -> str:
    """1.5 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def printable(name: str) -> str:
    """A file name that can be printed and stored even when it is no valid text."""
    return name.encode("utf-8", "backslashreplace").decode()


def megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
