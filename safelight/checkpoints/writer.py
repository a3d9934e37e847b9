"""Writes checkpoints: whole or not at all, in the background, and read back before an old one is deleted."""

from __future__ import annotations

import contextlib
import functools
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from safelight.checkpoints import folder as retention
from safelight.checkpoints import manifest
from safelight.checkpoints.coordinator import ATTEMPTS, SaveCoordinator
from safelight.checkpoints.folder import KEEP_ALL, clean, retain, steps
from safelight.checkpoints.manifest import Entry
from safelight.checkpoints.room import RESERVE, Room, describe_free, shortage
from safelight.checkpoints.snapshot import CheckpointFiles, Snapshot, prepare
from safelight.checkpoints.tensorfile import FileContent
from safelight.errors import CheckpointError, ProcessLost
from safelight.files import DISK, TEMPORARY, Disk, make_directories, try_to_remove, write_durably
from safelight.files.threads import in_threads
from safelight.words import megabytes

_LONGEST_PAUSE = 60.0  # seconds
Retain = Callable[..., list[int]]


def write(folder: Path, snapshot: Snapshot, *, disk: Disk = DISK) -> Path:
    """Save into `folder` (RUN/checkpoints) and read it back; the path, once it is there for good."""
    return commit(folder, prepare(snapshot), disk)


def commit(
    folder: Path,
    files: CheckpointFiles,
    disk: Disk = DISK,
    coordinator: SaveCoordinator | None = None,
    leaving: Room | None = None,
) -> Path:
    """Write to a temporary name, make durable, rename, make the name durable, read back: in this order only.
    `leaving`: what has to stay free for something that comes first."""
    coordinator = coordinator or SaveCoordinator()
    final = retention.place(folder, files.step)
    temporary = folder / f"{TEMPORARY}{files.step:08d}-{secrets.token_hex(4)}"
    try:
        make_directories(folder, disk)
        _check_space(folder, files, coordinator.size, disk, leaving)
        of_others = _write_files(temporary, files, disk, coordinator)
        old = retention.displace(final, disk)
        disk.rename(temporary, final)
        disk.sync_directory(folder)
        _read_back(final, old, disk, of_others)
    except Exception as error:  # by phase: a full disk has many faces, and each means that nothing was saved
        if temporary.exists():
            try_to_remove(temporary, disk)
        reason = str(error).rstrip(".")
        raise CheckpointError(f"Step {files.step} was not saved in {folder}: {reason}.") from error
    return final


def _check_space(folder: Path, files: CheckpointFiles, processes: int, disk: Disk, leaving: Room | None) -> None:
    own = Room(files.size * processes, len(files.contents) * processes + 2)  # its folder and its manifest
    words = shortage(folder, own if leaving is None else own + leaving, disk)
    if words is not None:
        raise CheckpointError(words if leaving is None else f"{words}, with those of the next checkpoint")


def _write_files(folder: Path, files: CheckpointFiles, disk: Disk, coordinator: SaveCoordinator) -> set[str]:
    """The manifest last, when every file that it names is durable; the names of those that others wrote."""
    disk.make_directory(folder)
    coordinator.announce(folder.name)
    try:
        own = write_own(folder, files, disk)
    except Exception:
        with contextlib.suppress(CheckpointError, ProcessLost):
            coordinator.collect()  # or the others would write into what is being removed
        raise
    of_others = coordinator.collect()
    text = manifest.render(files.step, [*own, *of_others], files.environment, files.sharded)
    write_durably(folder / manifest.NAME, [memoryview(text)], len(text), disk)
    disk.sync_directory(folder)
    return {entry.name for entry in of_others}


def write_own(folder: Path, files: CheckpointFiles, disk: Disk = DISK) -> list[Entry]:
    """What this process has, without a manifest."""

    def write_one(item: tuple[str, FileContent]) -> Entry:
        name, content = item
        return Entry(name, content.size, write_durably(folder / name, content.chunks(), content.size, disk))

    return in_threads(write_one, [*files.contents.items()], lambda item: item[1].size, disk)


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
        try_to_remove(old, disk)


class Writer:
    """Saves in the background: one thread, one save in flight; a failure never stops the training. It writes nothing
    until it is given a snapshot, as in processes that are not the first."""

    def __init__(
        self,
        folder: Path,
        *,
        last: int,
        every: int,
        say: Callable[[str], None],
        disk: Disk = DISK,
        before_commit: Callable[[], None] = lambda: None,
        coordinator: SaveCoordinator | None = None,
        leaving: Callable[[], Room] | None = None,
    ) -> None:
        """`before_commit` is called on the writer's thread: what must be on disk before the checkpoint is. `leaving`:
        what has to stay free for something that comes first.
        `coordinator`: of the first process, where several write one checkpoint together."""
        self.failures = 0  # saves that were given up
        self.last_saved: int | None = None
        self.seconds = 0.0  # that the last save took
        self._before_commit, self._coordinator = before_commit, coordinator or SaveCoordinator()
        self._folder, self._last, self._every, self._say, self._disk = folder, last, every, say, disk
        self._messages: deque[str] = deque()  # printed by the caller's thread only
        self._thread: threading.Thread | None = None
        self._hurry = threading.Event()
        self._failed_in_row = 0
        self._leaving = leaving

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
        """Print the messages of the background; called every step and free when there is nothing."""
        while self._messages:
            self._say(self._messages.popleft())

    def wait(self) -> None:
        """Until idle; a pause before a second attempt is cut short."""
        self._hurry.set()
        if self._thread is not None:
            self._thread.join()
        self.poll()

    def _save(self, snapshot: Snapshot, best: int | None, safe: int | None) -> None:
        begun = time.monotonic()
        time.sleep(0.001)  # or `start` would return only when the first tensors have been checked
        try:
            with self._coordinator.concluding_failures(ATTEMPTS):
                files = prepare(snapshot)
        except Exception as error:  # a second attempt could not end otherwise
            self._give_up(str(error), "")
            return
        self._before_commit()
        retain_most = functools.partial(retain, self._folder, every=self._every, best=best, safe=safe, disk=self._disk)
        for attempts_left in reversed(range(ATTEMPTS)):
            if self._attempt(files, retain_most, attempts_left):
                break
        else:
            return
        if self._failed_in_row:
            self._messages.append(f"Saving works again: step {files.step} is saved.")
        self._failed_in_row, self.last_saved, self.seconds = 0, files.step, time.monotonic() - begun
        self._remove_old(files.step, retain_most)

    def _attempt(self, files: CheckpointFiles, retain_most: Retain, attempts_left: int) -> bool:
        try:
            with self._coordinator.concluding_failures():
                leaving = None if self._leaving is None else self._leaving()
                commit(self._folder, files, self._disk, self._coordinator, leaving)
            self._coordinator.conclude(None)
        except Exception as error:
            free = describe_free(self._folder, self._disk, error)
            reason = f"{error} It needs {megabytes(files.size + RESERVE)}; {free}."
            if not attempts_left:
                self._give_up(reason, "Free space there, or lower checkpoint.keep_last or checkpoint.keep_every.")
            elif not self._coordinator.is_broken:
                self._make_room(reason, retain_most)
            return False
        return True

    def _make_room(self, reason: str, retain_most: Retain) -> None:
        """Keep two good ones, read to the last byte; then wait, the longer the more saves failed before."""
        removed: list[int] = []
        with contextlib.suppress(Exception):  # the second attempt reports what is wrong with the disk
            clean(self._folder, disk=self._disk)
            removed = retain_most(last=self._last if self._last >= KEEP_ALL else 2, read_all=True)
        pause = min(2.0**self._failed_in_row, _LONGEST_PAUSE) if self._failed_in_row else 0.0
        room = f" Removed steps {removed} to make room." if removed else ""
        self._messages.append(f"{reason}{room} It is tried once more{f' in {pause:.0f} s' if pause else ''}.")
        self._hurry.wait(pause)

    def _give_up(self, reason: str, advice: str) -> None:
        self.failures += 1
        self._failed_in_row += 1
        saved = steps(self._folder)
        kept = f"the newest checkpoint is step {saved[-1]}" if saved else "there is no checkpoint yet"
        self._messages.append(f"{reason} Training continues unsaved; {kept}. {advice}".rstrip())

    def _remove_old(self, step: int, retain_most: Retain) -> None:
        try:
            removed = retain_most(last=self._last, now=step)
        except Exception as error:  # the new one is safe; only old ones could not be deleted
            self._messages.append(f"Old checkpoints in {self._folder} could not be removed: {error}.")
            return
        if future := [old for old in removed if old > step]:
            self._messages.append(f"Removed checkpoints {future}: training went back to before step {step}.")


class PartWriter(Writer):
    """The writer of every process but the first, if several write one checkpoint together: it writes its own files. It
    reports nothing to the user and deletes nothing: the first one does."""

    def __init__(self, folder: Path, coordinator: SaveCoordinator, disk: Disk = DISK) -> None:
        super().__init__(folder, last=0, every=0, say=lambda _: None, disk=disk, coordinator=coordinator)

    def submit(self, snapshot: Snapshot, best: int | None, safe: int | None = None) -> bool:
        self.wait()  # the first process is done with the last one, so this takes but a moment
        return super().submit(snapshot, best, safe)

    def _save(self, snapshot: Snapshot, best: int | None, safe: int | None) -> None:
        try:
            for _ in range(ATTEMPTS):
                if (name := self._coordinator.wait_for_folder()) is not None:
                    self._coordinator.report(*self._write_part(self._folder / name, snapshot))
                if self._coordinator.wait_for_end():
                    self.last_saved = snapshot.step
                    return
        except ProcessLost:
            return  # the thread that trains finds out by itself
        self.failures += 1

    def _write_part(self, folder: Path, snapshot: Snapshot) -> tuple[list[Entry], str | None]:
        """Durable and read back, or why not."""
        try:
            entries = write_own(folder, prepare(snapshot), self._disk)
            self._disk.sync_directory(folder)
            for entry in entries:
                manifest.verify_file(folder, entry, self._disk)
        except Exception as error:  # by phase: a full disk has many faces
            return [], str(error)
        return entries, None
