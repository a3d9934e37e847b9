"""Metrics as lines of JSON: one object per step, readable by any tool while the run writes."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from safelight.files import DISK, Disk, append_to, open_regular, replace_atomically, status_of
from safelight.record.fact_encoding import encode
from safelight.record.sinks.batch import SinkBatch, rows_of

NAME = "metrics.jsonl"
WHOLE_LINE = re.compile(rb'\{"step": (-?\d+)[,}].*\n')  # as `write` makes it; parsing a million lines takes 25 s


class JsonLines:
    """RUN/metrics.jsonl. Lines of a step that is trained again are cut first, as is a line that a kill broke."""

    def __init__(self, folder: Path, *, from_step: int) -> None:
        path, disk = folder / NAME, Disk(folder)
        cut(path, from_step, disk)
        self._folder = folder
        self._file = append_to(path, disk)  # one write per batch: a reader sees whole lines

    def write(self, batch: SinkBatch) -> None:
        lines = [line(step, as_json(row)) for step, row in rows_of(batch).items()]
        for step, kind, path in batch.pictures:
            lines.append(line(step, {"picture": kind, "path": self._relative(path)}))
        for step, name, counts, edges in batch.histograms:
            lines.append(line(step, {"histogram": name, "counts": counts.tolist(), "edges": edges.tolist()}))
        for step, kind, facts in batch.events:
            lines.append(line(step, {"event": kind, "facts": dict(facts)}))
        rest = memoryview("".join(lines).encode())
        while rest:
            rest = rest[self._file.write(rest) or 0 :]

    def close(self) -> None:
        self._file.close()

    def _relative(self, path: Path) -> str:
        inside = path.is_relative_to(self._folder)  # so that the folder can be moved
        return (path.relative_to(self._folder) if inside else path).as_posix()


def line(step: int, rest: dict[str, Any]) -> str:
    return encode({"step": int(step), **rest}) + "\n"


def as_json(row: dict[str, float]) -> dict[str, Any]:
    """float32 in its shortest digits; what is not finite is null, and named."""
    clean: dict[str, Any] = {
        name: float(str(np.float32(number))) if math.isfinite(number) else None for name, number in row.items()
    }
    nonfinite = [name for name, number in clean.items() if number is None]
    return {**clean, "nonfinite": nonfinite} if nonfinite else clean


def cut(path: Path, from_step: int, disk: Disk = DISK) -> None:
    """Keeps whole lines of earlier steps; the old file or the new one stands there, whatever happens. What has other
    names too (hard links) is no longer shared afterwards."""
    if status_of(path, disk) is None:
        replace_atomically(path, (), disk=disk)
        return
    with os.fdopen(open_regular(path, disk)[0], "rb") as lines:
        whole = filter(None, map(WHOLE_LINE.fullmatch, lines))
        kept = (memoryview(each[0]) for each in whole if int(each[1]) < from_step)
        replace_atomically(path, kept, disk=disk)
