"""What the process of a checked script leaves for the one that reports."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

Ending = Literal["itself", "stopped", "swallowed", "late"]


@dataclass(frozen=True, slots=True)
class Notes:
    updates: int = 0
    ending: Ending = "itself"
    """Whether the script ended by itself, was stopped, went on although it was stopped, or took too long to leave."""
    recognised: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    """What the watch reported while the script ran."""
    is_known: bool = False
    """Whether process and target were recognised."""

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Notes | None:
        """None if the script's process left none: it never imported torch, or was killed."""
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        recognised, said = tuple(found["recognised"]), tuple(found["said"])
        return cls(found["updates"], found["ending"], recognised, said, found["is_known"])
