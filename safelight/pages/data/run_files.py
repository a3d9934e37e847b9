"""Files of an untrusted run folder: read only if they are regular, small and really inside it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from safelight.errors import CheckpointError
from safelight.files import read_plain

LARGEST_JSON = 8 << 20


def resolve_inside(root: Path, name: str | Path) -> Path | None:
    """Where a name within a folder really leads; None if that is nowhere, or outside."""
    try:
        home = root.resolve(strict=True)
        found = (home / name).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):  # no file, a NUL in the name, a link that leads to itself
        return None
    return found if found.is_relative_to(home) else None


def plain_file_inside(root: Path, name: str | Path) -> Path | None:
    """The plain file of this name within a folder; None if it is missing, no file, or leads outside."""
    found = resolve_inside(root, name)
    return found if found is not None and os.path.isfile(found) else None


def read_bytes(path: Path, most: int) -> bytes | None:
    """All of a plain file that is not larger than `most`; never waits, as opening a pipe would."""
    try:
        return read_plain(path, most)
    except CheckpointError:
        return None


def read_json(root: Path, name: str | Path) -> dict[str, Any]:
    """What a JSON file of the run holds; nothing where there is none that can be read."""
    path = plain_file_inside(root, name)
    content = None if path is None else read_bytes(path, LARGEST_JSON)
    try:
        found = json.loads(content or b"{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
