"""Where a run records what happens: the record, and the loggers, which get the same."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from safelight.diagnosis.finding import Finding
from safelight.files import MAX_PICTURE_BYTES, read_plain
from safelight.record.backlog import group_by_signals
from safelight.record.sinks import open_sinks
from safelight.record.sinks.batch import Event, Histogram, LoggedPicture, SinkBatch
from safelight.record.sinks.logger_threads import LoggerThreads
from safelight.record.store import NullRecordWriter, RecordWriter
from safelight.run import RunFolder

BATCH_STEPS, BATCH_SECONDS = 64, 1.0
END_SECONDS, INTERRUPTED_SECONDS = 20.0, 5.0  # that loggers have to finish: W&B has its last uploads to make


def open_record(
    folder: RunFolder,
    step: int,
    say: Callable[[str], None],
    *,
    loggers: Sequence[str] = (),
    config: Mapping[str, Any] | None = None,
    silent: bool = False,
) -> tuple[RecordWriter, LoggerThreads | None]:
    """The record and the loggers of a run from this step on. `config`: for the loggers. `silent`: nothing is
    kept, as on every process but the first."""
    if silent:
        return NullRecordWriter(), None
    names, path, settings = dict.fromkeys(loggers), folder.path, dict(config or {})
    threads = open_sinks(names, path, config=settings, run_name=path.name, from_step=step, say=say) if names else None
    return RecordWriter(folder.record, from_step=step, say=say), threads


class Recorder:
    """The record is the truth; loggers get copies, a second's worth at a time, and cost the training nothing."""

    def __init__(self, record: RecordWriter, loggers: LoggerThreads | None) -> None:
        self._record, self._loggers = record, loggers
        self._readings: list[tuple[int, dict[str, float]]] = []
        self._sent = time.monotonic()

    def replace(self, record: RecordWriter, loggers: LoggerThreads | None) -> None:
        """Continues with others, opened from an earlier step; the old ones were closed."""
        self._record, self._loggers, self._readings = record, loggers, []

    def begin_again(self, record: RecordWriter) -> None:
        """Continues with another record: the file of the old one is gone. Loggers go on."""
        old, self._record = self._record, record
        old.close()

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        self._record.add(step, numbers)
        if self._loggers is not None:
            self._readings.append((step, dict(numbers)))
            if len(self._readings) >= BATCH_STEPS or time.monotonic() - self._sent > BATCH_SECONDS:
                self._send()

    def event(self, step: int, kind: str, /, **facts: Any) -> None:
        self._record.event(step, kind, **facts)
        if self._loggers is not None:
            self._loggers.put(SinkBatch(events=(Event(step, kind, facts),)))

    def picture(self, step: int, kind: str, path: Path) -> None:
        """A picture that is finished and lies in the run folder."""
        with Image.open(io.BytesIO(read_plain(path, MAX_PICTURE_BYTES))) as image:
            self._record.picture(step, kind, path.absolute(), image.size)
        if self._loggers is not None and path.suffix == ".png":  # an animation is not one that TensorBoard could show
            self._loggers.put(SinkBatch(pictures=(LoggedPicture(step, kind, path),)))

    @property
    def has_loggers(self) -> bool:
        return self._loggers is not None

    def histograms(self, step: int, found: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
        """(counts, edges) by name: for loggers only, the record holds none."""
        if self._loggers is not None:
            self._loggers.put(SinkBatch(histograms=tuple(Histogram(step, name, *each) for name, each in found.items())))

    def finding(self, step: int, found: Finding) -> None:
        self._record.finding(step, found.code, **found.to_json())
        if self._loggers is not None:
            facts = {"cause": found.cause, "severity": found.severity, "summary": found.summary}
            self._loggers.put(SinkBatch(events=(Event(step, "finding", facts),)))

    def flush(self, *, wait: bool = False) -> None:
        self._record.flush(wait=wait)
        self._send()

    def wait_until_written(self) -> None:
        """From any thread: returns when all that was recorded so far is on disk."""
        self._record.flush(wait=True)

    def close(self, *, interrupted: bool = False) -> None:
        self._send()
        self._record.close()
        if self._loggers is not None:
            self._loggers.close(INTERRUPTED_SECONDS if interrupted else END_SECONDS)

    @property
    def restorations(self) -> list[str]:
        """In words: what of the record was gone and is there again."""
        return self._record.restorations

    def abandon(self) -> None:
        """Ends without another write: the folder is another process's now."""
        self._record.abandon()
        if self._loggers is not None:
            self._loggers.close(INTERRUPTED_SECONDS)

    def _send(self) -> None:
        rows, self._readings, self._sent = self._readings, [], time.monotonic()
        if self._loggers is not None and rows:
            self._loggers.put(SinkBatch(readings=tuple(group_by_signals(rows))))
