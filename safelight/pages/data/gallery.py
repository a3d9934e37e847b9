"""The pictures of a run: those its record names that are really there, each by an id that changes with its content."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safelight.pages.data.numbers import as_int, as_str
from safelight.pages.data.run_files import plain_file_inside, resolve_inside
from safelight.record.history import History, RecordedPicture
from safelight.run import RunFolder

TYPES = {".png": "image/png", ".gif": "image/gif", ".webp": "image/webp", ".jpg": "image/jpeg", ".jpeg": "image/jpeg"}
MAX_PICTURES = 20_000


@dataclass(frozen=True, slots=True)
class FoundPicture:
    """A picture that lies in the run folder."""

    row: RecordedPicture
    path: Path
    id: str
    """A picture that is drawn again after a resume is another one: so a browser may cache each one."""

    def shown(self, run_id: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "kind": self.row.kind[:100],
            "step": self.row.step,
            "width": as_int(self.row.width),
            "height": as_int(self.row.height),
            "url": f"/api/runs/{run_id}/pictures/{self.id}",
        }


def pictures(history: History, run: RunFolder, run_id: str = "") -> list[dict[str, Any]]:
    """In the order of their steps."""
    return [each.shown(run_id) for each in locate(run, history.pictures(most=MAX_PICTURES))]


def find_pictures(history: History, run: RunFolder) -> dict[str, FoundPicture]:
    """By their ids: all that the record names and that are ours to show."""
    return {each.id: each for each in locate(run, history.pictures(most=MAX_PICTURES))}


def current_path(run: RunFolder, picture: FoundPicture) -> Path | None:
    """The file of a picture that was found before; None if it is another one by now."""
    return next((each.path for each in locate(run, [picture.row]) if each.id == picture.id), None)


def locate(run: RunFolder, rows: Iterable[RecordedPicture]) -> Iterator[FoundPicture]:
    """Those of the rows that name a plain image file inside the run, however their paths are written.

    There may be thousands: each folder is resolved once, and a file costs one lstat.
    """
    folders: dict[Path, Path | None] = {}
    for row in rows:
        named = Path(row.path)
        if named.is_absolute() or ".." in named.parts or named.suffix.lower() not in TYPES or as_int(row.step) is None:
            continue
        if named.parent not in folders:
            folders[named.parent] = resolve_inside(run.path, named.parent)
        folder = folders[named.parent]
        if folder is None or as_str(row.kind) is None:
            continue
        path = folder / named.name
        try:
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                path = plain_file_inside(run.path, named) or path
                status = os.lstat(path)
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(status.st_mode):
            content = f"{row.kind}\0{row.step}\0{row.path}\0{status.st_mtime_ns}\0{status.st_size}"
            yield FoundPicture(row, path, hashlib.sha256(content.encode("utf-8", "surrogateescape")).hexdigest()[:16])
