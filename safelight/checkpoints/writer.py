"""Writes checkpoints: whole or not at all, in the background, and read back before an old one is deleted."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from safelight.checkpoints import folder as retention
from safelight.checkpoints import manifest
from safelight.checkpoints.folder import KEEP_ALL, clean, retain, steps
from safelight.checkpoints.manifest import Entry
from safelight.checkpoints.snapshot import Prepared, Snapshot, prepare
from safelight.errors import CheckpointError, ProcessLost
from safelight.files import DISK, TEMPORARY, Disk, make_directories, write_durably
from safelight.words import megabytes

RESERVE = 32 << 20  # bytes left free, so that the record and the last words of a run still fit
_LONGEST_PAUSE = 60.0  # seconds

Kept = tuple[int | None, int | None]  # steps whose checkpoints are not deleted: the best, and the one to go back to


class Others(Protocol):
    """The other processes, where several write one checkpoint together."""

    count: int
    """Of all processes."""

    def open(self, name: str) -> None:
        """The folder is there for them to write into."""
        ...

    def collect(self) -> list[Entry]:
        """Waits until none of them writes any more, each file durable and read back; fails where one of them did."""
        ...


def write(folder: Path, snapshot: Snapshot, *, disk: Disk = DISK) -> Path:
    """Save into `folder` (RUN/checkpoints) and read it back; the path, once it is there for good."""
    return commit(folder, prepare(snapshot), disk)


def commit(folder: Path, prepared: Prepared, disk: Disk = DISK, others: Others | None = None) -> Path:
    """Write to a temporary name, make durable, rename, make the name durable, read back: in this order only."""
    final = retention.place(folder, prepared.step)
    temporary = folder / f"{TEMPORARY}{prepared.step:08d}-{secrets.token_hex(4)}"
    try:
        make_directories(folder, disk)
        _check_space(folder, prepared.size * (1 if others is None else others.count), disk)
        of_others = _write_files(temporary, prepared, disk, others)
        old = retention.displace(final, disk)
        disk.rename(temporary, final)
        disk.sync_directory(folder)
        _read_back(final, old, disk, of_others)
    except Exception as error:  # by phase: a full disk has many faces, and each means that nothing was saved
        if temporary.exists():
            retention.try_to_remove(temporary, disk)
        reason = str(error).rstrip(".")
        raise CheckpointError(f"Step {prepared.step} was not saved in {folder}: {reason}.") from error
    return final


def _check_space(folder: Path, size: int, disk: Disk) -> None:
    free, needed = disk.free(folder), size + RESERVE
    if free is not None and free < needed:
        raise CheckpointError(f"the disk has {megabytes(free)} free and {megabytes(needed)} are needed")


def _write_files(folder: Path, prepared: Prepared, disk: Disk, others: Others | None = None) -> set[str]:
    """The manifest last, when every file that it names is durable; the names of those that others wrote."""
    disk.make_directory(folder)
    if others is not None:
        others.open(folder.name)
    try:
        entries = write_own(folder, prepared, disk)
    except Exception:
        if others is not None:
            with contextlib.suppress(CheckpointError, ProcessLost):
                others.collect()  # or they would write into what is being removed
        raise
    theirs = [] if others is None else others.collect()
    text = manifest.render(prepared.step, [*entries, *theirs], prepared.environment, prepared.sharded)
    write_durably(folder / manifest.NAME, [memoryview(text)], len(text), disk)
    disk.sync_directory(folder)
    return {entry.name for entry in theirs}


def write_own(folder: Path, prepared: Prepared, disk: Disk = DISK) -> list[Entry]:
    """What this process has, without a manifest."""
    entries = []
    for name, file in prepared.files.items():
        size = len(file) if isinstance(file, bytes) else file.size
        chunks = [memoryview(file)] if isinstance(file, bytes) else file.chunks()
        entries.append(Entry(name, size, write_durably(folder / name, chunks, size, disk)))
    return entries


def _read_back(final: Path, old: Path | None, disk: Disk, read_by_others: set[str]) -> None:
    """Only what reads back may take the place of the checkpoint that stood there."""
    try:
        manifest.verify(final, disk, read_by_others=read_by_others)
    except CheckpointError:
        with contextlib.suppress(OSError):
            retention.discard([final], disk)
            if old is not None:
                disk.rename(old, final)
        raise
    if old is not None:
        retention.try_to_remove(old, disk)


class Writer:
    """Saves in the background: one thread, one save in flight; a failure never stops the training."""

    def __init__(
        self,
        folder: Path,
        *,
        last: int,
        every: int,
        say: Callable[[str], None],
        disk: Disk = DISK,
        before_commit: Callable[[], None] = lambda: None,
    ) -> None:
        """`before_commit` is called on the writer's thread: what must be on disk before the checkpoint is."""
        self.failures = 0  # saves that were given up
        self._before_commit = before_commit
        self.last_saved: int | None = None
        self._folder, self._last, self._every, self._say, self._disk = folder, last, every, say, disk
        self._news: deque[str] = deque()  # spoken by the caller's thread only
        self._thread: threading.Thread | None = None
        self._hurry = threading.Event()
        self._failed_in_row = 0

    @property
    def busy(self) -> bool:
        """Whether a save is in flight, so that a caller need not clone a snapshot in vain."""
        return self._thread is not None and self._thread.is_alive()

    def submit(self, snapshot: Snapshot, best: int | None, safe: int | None = None) -> bool:
        """Start saving; False if one is still in flight. Nothing is ever queued."""
        self.poll()
        if self.busy:
            return False
        self._hurry.clear()
        self._thread = threading.Thread(target=self._save, args=(snapshot, best, safe), name="safelight-checkpoint")
        self._thread.start()
        return True

    def poll(self) -> None:
        """Say what the background has to report; called every step and free when there is nothing."""
        while self._news:
            self._say(self._news.popleft())

    def wait(self) -> None:
        """Until idle; a pause before a second attempt is cut short."""
        self._hurry.set()
        if self._thread is not None:
            self._thread.join()
        self.poll()

    def close(self) -> None:
        self.wait()

    def _save(self, snapshot: Snapshot, best: int | None, safe: int | None) -> None:
        time.sleep(0.001)  # or `start` would return only when the first tensors have been looked at
        try:
            prepared = self._prepare(snapshot)
        except Exception as error:  # a second attempt could not end otherwise
            self._give_up(str(error), "")
            return
        self._before_commit()
        kept = (best, safe)
        if not self._attempt(prepared, kept, final=False) and not self._attempt(prepared, kept, final=True):
            return
        if self._failed_in_row:
            self._news.append(f"Saving works again: step {prepared.step} is saved.")
        self._failed_in_row, self.last_saved = 0, prepared.step
        self._thin_out(prepared.step, kept)

    def _prepare(self, snapshot: Snapshot) -> Prepared:
        return prepare(snapshot)

    def _commit(self, prepared: Prepared) -> None:
        commit(self._folder, prepared, self._disk)

    def _attempt(self, prepared: Prepared, kept: Kept, final: bool) -> bool:
        try:
            self._commit(prepared)
        except Exception as error:
            reason = f"{error} It needs {megabytes(prepared.size + RESERVE)}; {self._free()}."
            if final:
                advice = "Free space there, or lower checkpoint.keep_last or checkpoint.keep_every."
                self._give_up(reason, advice)
            else:
                self._make_room(reason, kept)
            return False
        return True

    def _make_room(self, reason: str, kept: Kept) -> None:
        """Keep two good ones, read to the last byte; then wait, the longer the more saves failed before."""
        removed: list[int] = []
        with contextlib.suppress(Exception):  # the second attempt reports what is wrong with the disk
            clean(self._folder, disk=self._disk)
            last, (best, safe) = self._last if self._last >= KEEP_ALL else 2, kept
            good, disk = manifest.is_whole, self._disk
            removed = retain(self._folder, last=last, every=self._every, best=best, safe=safe, good=good, disk=disk)
        pause = min(2.0**self._failed_in_row, _LONGEST_PAUSE) if self._failed_in_row else 0.0
        room = f" Removed steps {removed} to make room." if removed else ""
        self._news.append(f"{reason}{room} It is tried once more{f' in {pause:.0f} s' if pause else ''}.")
        self._hurry.wait(pause)

    def _give_up(self, reason: str, advice: str) -> None:
        self.failures += 1
        self._failed_in_row += 1
        known = steps(self._folder)
        kept = f"the newest checkpoint is step {known[-1]}" if known else "there is no checkpoint yet"
        self._news.append(f"{reason} Training continues unsaved; {kept}. {advice}".rstrip())

    def _free(self) -> str:
        try:
            free = self._disk.free(self._folder)
        except OSError:
            free = None
        return "free space is unknown" if free is None else f"{megabytes(free)} are free"

    def _thin_out(self, step: int, kept: Kept) -> None:
        last, every, (best, safe) = self._last, self._every, kept
        try:
            removed = retain(self._folder, last=last, every=every, best=best, safe=safe, now=step, disk=self._disk)
        except Exception as error:  # the new one is safe; only old ones could not be deleted
            self._news.append(f"Old checkpoints in {self._folder} could not be removed: {error}.")
            return
        if future := [old for old in removed if old > step]:
            self._news.append(f"Removed checkpoints {future}: training went back to before step {step}.")


class SilentWriter(Writer):
    """Of a process that is not the first: writes nothing."""

    def __init__(self) -> None:
        self.failures, self.last_saved = 0, None

    @property
    def busy(self) -> bool:
        return False

    def submit(self, snapshot: Snapshot, best: int | None, safe: int | None = None) -> bool:
        return True

    def poll(self) -> None: ...
    def wait(self) -> None: ...
