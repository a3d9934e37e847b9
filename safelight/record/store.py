"""The writer of a record: takes readings from the training at almost no cost, stores them on a thread of its own."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from safelight.record.backlog import ReadingTable, group_by_signals, take
from safelight.record.chunk_writer import ChunkWriter
from safelight.record.database import forget_from, open_database, transaction
from safelight.record.fact_encoding import encode, is_storable
from safelight.record.restoration import Presence

STORE_SECONDS = 0.4  # between two commits: with the time they take, a kill costs less than a second
GATHER_SECONDS = 0.02  # what comes first is seldom alone: a window is handed over step by step
LARGEST_BACKLOG = 20_000  # steps, windows or events that wait for the writer
MAX_UNSTORED_ROWS = 50_000  # rows that wait for room on the disk, about 100 MB

Statement = tuple[str, tuple[Any, ...]]


class RecordWriter:
    """Collects readings, events, pictures and findings. Never blocks or ends the training."""

    def __init__(self, path: Path, *, from_step: int, say: Callable[[str], None]) -> None:
        self._path, self._from_step, self._say = path, from_step, say
        self._readings: deque[tuple[int, dict[str, float]]] = deque()
        self._windows: deque[ReadingTable] = deque()
        self._statements: deque[Statement] = deque()
        self._waiting: deque[threading.Event] = deque()
        self._left_out, self._lost, self._failing, self._closing = 0, 0, False, False
        self._abandoned = False
        self._reported: set[str] = set()
        self._presence: Presence | None = None
        self.restorations: list[str] = []  # in words: the record was gone and is there again
        self._wake, self._hurry = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._write_all, name="safelight-record", daemon=True)
        self._thread.start()

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """Some signals of one step."""
        self._hand_over(self._readings, (step, dict(numbers)))

    def add_window(self, steps: np.ndarray, names: tuple[str, ...], values: np.ndarray) -> None:
        """`values` [steps, names] as float32. The arrays must not change later."""
        self._hand_over(self._windows, ReadingTable(steps, names, values))

    def event(self, step: int, kind: str, /, **facts: Any) -> None:
        self._note("event VALUES (NULL, ?, ?, ?, ?)", step, time.time(), kind, encode(facts))

    def finding(self, step: int, code: str, /, **facts: Any) -> None:
        self._note("finding VALUES (NULL, ?, ?, ?, ?)", step, time.time(), code, encode(facts))

    def picture(self, step: int, kind: str, path: Path, size: tuple[int, int]) -> None:
        """A file in the run folder, after so many completed steps; `size` is width and height."""
        place = Path(os.path.relpath(path, self._path.parent)) if path.is_absolute() else path
        self._note("picture VALUES (?, ?, ?, ?, ?)", kind, step, place.as_posix(), *size)

    def _note(self, what: str, *values: Any) -> None:
        """What SQLite has no room for would cost all that is stored with it."""
        if all(map(is_storable, values)):
            self._hand_over(self._statements, (f"INSERT OR REPLACE INTO {what}", values))
        else:
            self._report(f"An entry of the record holds what it has no room for, and is left out: {values!r:.200}")

    def _hand_over(self, backlog: deque[Any], item: Any) -> None:
        waiting = len(backlog)
        if waiting < LARGEST_BACKLOG:
            backlog.append(item)
        else:
            self._left_out += 1
        if waiting == LARGEST_BACKLOG // 4:
            self._hurry.set()
        if not self._wake.is_set():
            self._wake.set()

    def flush(self, *, wait: bool = False) -> None:
        """Stores now what has come so far; with `wait`, returns when that is done."""
        stored = threading.Event()
        self._waiting.append(stored)
        self._call()
        while wait and self._thread.is_alive() and not stored.wait(0.1):
            pass

    def close(self) -> None:
        self._closing = True
        self._call()
        self._thread.join()

    def abandon(self) -> None:
        """Ends without writing what is not written yet: the record is another process's now."""
        self._abandoned = True
        self.close()

    def _call(self) -> None:
        self._hurry.set()
        self._wake.set()

    def _write_all(self) -> None:
        chunks = None
        try:
            database = open_database(self._path, self._report)
            forget_from(database, self._from_step)
            chunks = ChunkWriter(database)
            self._presence = Presence(self._path)
        except Exception as error:  # also a damaged row: without this thread the backlog would fill, and `close` hang
            self._report(f"The record {self._path} cannot be opened ({error}); the run goes on without it.")
        closing, stored = False, -STORE_SECONDS
        while not closing:
            self._wake.wait(STORE_SECONDS if self._failing else None)  # a run that records nothing costs nothing
            self._hurry.wait(max(GATHER_SECONDS, stored + STORE_SECONDS - time.monotonic()))
            self._wake.clear()
            self._hurry.clear()
            closing = self._closing  # read first: what was handed over before is still written
            try:
                self._write(chunks)
            except Exception as error:  # of whatever was handed over: the thread goes on, and `flush` comes back
                self._report(
                    f"A part of the record could not be written ({type(error).__name__}: {error}) and is lost."
                )
            stored = time.monotonic()
        self._report_losses()
        if chunks is not None:
            chunks.database.close()

    def _write(self, chunks: ChunkWriter | None) -> None:
        waiting = take(self._waiting)
        try:
            self._write_waiting(chunks)
        finally:
            for stored in waiting:
                stored.set()

    def _write_waiting(self, chunks: ChunkWriter | None) -> None:
        readings, windows = take(self._readings), take(self._windows)
        if chunks is None or self._abandoned:
            self._statements.clear()
        else:
            for table in [*windows, *group_by_signals(readings)]:
                self._put(chunks, table)
            self._store(chunks)

    def _put(self, chunks: ChunkWriter, table: ReadingTable) -> None:
        steps, names, values = table
        try:
            with np.errstate(over="ignore"):  # beyond float32: counted with the infinite ones
                chunks.put(np.asarray(steps, np.int64), names, np.asarray(values, np.float32))
        except Exception as error:
            if (which := ", ".join(names[:3])) not in self._reported:
                self._report(f"Readings of {which} could not be recorded ({error}); the run goes on.")
            self._reported.add(which)

    def _store(self, chunks: ChunkWriter) -> None:
        statements = list(self._statements)
        try:
            self._restore_if_lost(chunks)
            with transaction(chunks.database):
                chunks.store()
                for statement, values in statements:
                    chunks.database.execute(statement, values)
        except Exception as error:
            self._fail(chunks, error)
            return
        chunks.mark_stored()
        if self._presence is not None:
            self._presence.learn()  # the first commit makes the file of the WAL
        for _ in statements:
            self._statements.popleft()
        self._failing = False
        self._report_losses()

    def _restore_if_lost(self, chunks: ChunkWriter) -> None:
        if self._presence is not None and self._presence.is_lost():
            chunks.database = self._presence.restore(chunks.database)
            words = (
                f"The record {self._path} was deleted or replaced while it was written. It was rewritten completely."
            )
            self.restorations.append(words)
            self._report(words)

    def _fail(self, chunks: ChunkWriter, error: Exception) -> None:
        """A full or locked disk is tried again, with all that came since; what cannot be kept so long is lost."""
        if not self._failing:
            self._report(f"The record could not be written ({error}); it is tried again, the run goes on.")
        self._failing = True
        if not isinstance(error, sqlite3.OperationalError) or chunks.size > MAX_UNSTORED_ROWS or self._closing:
            self._lost += chunks.size + len(self._statements)
            self._statements.clear()
            chunks.forget()

    def _report_losses(self) -> None:
        if self._left_out:
            self._report(f"The record was too slow: {self._left_out} entries were left out.")
        if self._lost:
            self._report(f"{self._lost} rows of the record are lost, because it could not be written.")
        self._left_out = self._lost = 0

    def _report(self, message: str) -> None:
        with contextlib.suppress(Exception):  # a terminal that is gone must not end the record
            self._say(message)


class NullRecordWriter(RecordWriter):
    """The record of every process but the first: keeps nothing."""

    restorations: list[str] = []  # noqa: RUF012  never filled

    def __init__(self) -> None: ...
    def add(self, step: int, numbers: Mapping[str, float]) -> None: ...
    def event(self, step: int, kind: str, /, **facts: Any) -> None: ...
    def finding(self, step: int, code: str, /, **facts: Any) -> None: ...
    def picture(self, step: int, kind: str, path: Path, size: tuple[int, int]) -> None: ...
    def flush(self, *, wait: bool = False) -> None: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...
