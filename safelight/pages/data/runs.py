"""Which runs there are below some folders, and the id that a browser requests them by."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from safelight.run import RunFolder
from safelight.words import printable

DEPTH = 2  # folders of runs, and folders of such folders
MOST_RUNS, MOST_ENTRIES = 1000, 10_000


@dataclass(frozen=True, slots=True)
class FoundRun:
    id: str
    """A short hash of the resolved path: the same as long as the run lies there."""
    name: str
    path: Path

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.path)


def find_runs(roots: Sequence[Path]) -> list[FoundRun]:
    """Runs in these folders, or the folders themselves; each once, however many links lead to it."""
    found: dict[str, FoundRun] = {}
    for root in roots:
        for path in _search(root, DEPTH):
            run = describe(path, root)
            found.setdefault(run.id, run)
            if len(found) >= MOST_RUNS:
                return list(found.values())
    return list(found.values())


def describe(path: Path, root: Path | None = None) -> FoundRun:
    resolved = path.resolve()
    inside = root is not None and resolved != root.resolve() and resolved.is_relative_to(root.resolve())
    name = resolved.relative_to(root.resolve()).as_posix() if inside and root is not None else resolved.name
    return FoundRun(hashlib.sha256(os.fsencode(resolved)).hexdigest()[:12], printable(name), resolved)


def _search(path: Path, depth: int) -> Iterator[Path]:
    """Links are not followed: `latest` leads to a run that is found anyway, and others may lead anywhere."""
    try:
        if any((path / name).is_file() for name in ("run.json", "record.sqlite", "config.yaml")):
            yield path
            return
        with os.scandir(path) as entries:
            inside = [entry.path for _, entry in zip(range(MOST_ENTRIES), entries, strict=False) if _is_folder(entry)]
    except OSError:
        return
    if depth:
        for each in sorted(inside):
            yield from _search(Path(each), depth - 1)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
    except OSError:
        return False
