"""What a process that is not the first has in place of the run folder: it looks on, and writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safelight.checkpoints.snapshot import Snapshot
from safelight.checkpoints.writer import Writer
from safelight.record.store import Record
from safelight.run import RunFolder


class SilentFolder(RunFolder):
    """Knows where the run lies."""

    def report(self, **facts: Any) -> None: ...


class SilentRecord(Record):
    """Takes everything and keeps nothing."""

    def __init__(self) -> None: ...
    def add(self, step: int, numbers: Mapping[str, float]) -> None: ...
    def event(self, step: int, kind: str, /, **facts: Any) -> None: ...
    def finding(self, step: int, code: str, /, **facts: Any) -> None: ...
    def picture(self, step: int, kind: str, path: Path, size: tuple[int, int]) -> None: ...
    def flush(self, *, wait: bool = False) -> None: ...
    def close(self) -> None: ...


class SilentWriter(Writer):
    """Nothing is ever in flight."""

    def __init__(self) -> None:
        self.failures, self.last_saved = 0, None

    @property
    def busy(self) -> bool:
        return False

    def submit(self, snapshot: Snapshot, best: int | None, safe: int | None = None) -> bool:
        return True

    def poll(self) -> None: ...
    def wait(self) -> None: ...
