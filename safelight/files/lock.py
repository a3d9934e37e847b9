"""The lock on a run folder, and whether the folder and its lock are still those that were taken."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import weakref
from pathlib import Path

from safelight.errors import RunBusy, RunFolderLost, RunTaken, UsageError
from safelight.files.disk import Disk, LinkInside, status_of
from safelight.files.writing import make_directories, temporary_name

_NO_LOCKS = {errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK}  # cluster mounts without flock
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
ATTEMPTS = 8  # to lock a file that somebody else replaces meanwhile


def open_lock(path: Path, disk: Disk) -> int:
    """A file that only serves to be locked. It is never written to, so it may be anything regular."""
    try:
        with disk._at(path) as (folder, name):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(name, flags, 0o666, dir_fd=folder)
    except OSError as error:
        status = None
        with contextlib.suppress(OSError):
            status = status_of(path, disk)
        if isinstance(error, LinkInside) or status is None or stat.S_ISREG(status.st_mode):
            raise
        raise _not_a_file(path) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_a_file(path)
    return descriptor


def _not_a_file(path: Path) -> UsageError:
    return UsageError(f"{path} is a link, a folder or a device where a plain file to lock was expected. Remove it.")


class RunLock:
    """One process per run folder: an flock, which the kernel releases however that process ends."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "lock"
        self.guarded = False  # stays False inside the lock where the filesystem has no locks
        self._descriptor: int | None = None
        self._handle: int | None = None  # on the folder, wherever it goes

    def __enter__(self) -> RunLock:
        make_directories(self.folder)
        self._descriptor = self._take()
        self._handle = os.open(self.folder, _FOLDER)
        # A forked worker that outlives us would hold the lock; closing its copy leaves ours locked.
        mine = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: (lock := mine()) and lock._close())
        return self

    def _take(self) -> int:
        """The file that stands there now, locked, with our name in it."""
        for _ in range(ATTEMPTS):
            descriptor = open_lock(self.path, Disk(self.folder))
            try:
                if not self._try(descriptor):
                    raise self._busy(os.pread(descriptor, 512, 0).decode(errors="replace").split())
                if os.fstat(descriptor).st_nlink > 1:  # the lock of a backup (cp -al), or any file of the user
                    descriptor = self._renewed(descriptor)
                if _is_same(os.fstat(descriptor), status_of(self.path, Disk(self.folder))):
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, f"{os.getpid()} {os.uname().nodename}\n".encode(), 0)
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
        raise self._busy([])

    def _try(self, descriptor: int) -> bool:
        self.guarded = False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.guarded = True
        except OSError as error:
            return error.errno in _NO_LOCKS
        return True

    def _renewed(self, old: int) -> int:
        """A file of our own in the place of one that has other names too."""
        disk, temporary = Disk(self.folder), temporary_name(self.path)
        descriptor = disk.create(temporary)
        self._try(descriptor)
        disk.rename(temporary, self.path)
        os.close(old)
        return descriptor

    def check(self) -> None:
        """RunFolderLost where the folder was moved, deleted or unmounted, RunTaken where another process has its lock.
        A lock that was only removed is taken again."""
        if self._handle is None or self._descriptor is None:
            return
        ours = os.fstat(self._handle)
        if not _is_same(ours, _status(self.folder)):
            raise RunFolderLost(self.folder, self._moved_to(ours))
        if not _is_same(os.fstat(self._descriptor), status_of(self.path, Disk(self.folder))):
            try:
                old, self._descriptor = self._descriptor, self._take()
            except RunBusy as busy:
                raise RunTaken(self.folder, busy) from None
            os.close(old)

    def _moved_to(self, ours: os.stat_result) -> Path | None:
        """Where the folder is now, if it is anywhere: known on Linux."""
        with contextlib.suppress(OSError):
            place = Path(os.readlink(f"/proc/self/fd/{self._handle}"))
            return place if _is_same(ours, _status(place)) else None
        return None

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None and self.guarded:
            os.ftruncate(self._descriptor, 0)  # the file stays: removing it would let two processes lock two files
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # also where a forked child still has a copy
        self._close()

    def _close(self) -> None:
        descriptors = self._descriptor, self._handle
        self._descriptor, self._handle, self.guarded = None, None, False
        for descriptor in descriptors:
            if descriptor is not None:
                os.close(descriptor)

    def _busy(self, holder: list[str]) -> RunBusy:
        who = f"process {holder[0]} on {holder[1]}" if len(holder) == 2 else "another process"
        return RunBusy(
            f"Run folder {self.folder} is in use by {who}. "
            "Wait until it ends, stop it, or choose another folder with --run."
        )


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _is_same(one: os.stat_result, other: os.stat_result | None) -> bool:
    return other is not None and (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
