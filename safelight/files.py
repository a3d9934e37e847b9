"""Small durable files: the seam to the filesystem, atomic writing, guarded reading, and the lock on a run."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import stat
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from safelight.errors import CheckpointError, RunBusy

CHUNK = 8 << 20  # bytes per system call: large enough for speed, small enough that hashing and writing interleave
TEMPORARY = ".tmp-"  # prefix of everything unfinished
_NO_ALLOCATION = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}  # zfs and some network mounts
_NO_LOCKS = {errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK}  # cluster mounts without flock
_FIXABLE = {errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM}


class Unreadable(CheckpointError):
    """Could not be read now, which says nothing about its content: it must not be set aside as damaged."""


class Disk:
    """Every filesystem call of saving and loading, so that a test can fail, crash or record each of them."""

    make_directory = staticmethod(os.mkdir)
    write = staticmethod(os.write)
    close = staticmethod(os.close)
    rename = staticmethod(os.replace)
    unlink = staticmethod(os.unlink)
    remove_directory = staticmethod(os.rmdir)
    read = staticmethod(os.read)

    def free(self, folder: Path) -> int | None:
        """Bytes that this user may still write, or None where the filesystem does not say."""
        status = os.statvfs(folder)
        return status.f_bavail * status.f_frsize if status.f_blocks else None

    def create(self, path: Path) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def allocate(self, descriptor: int, size: int) -> None:
        """Take the space now: a full disk is found before the first byte and not half way."""
        if not size or not hasattr(os, "posix_fallocate"):
            return
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            if error.errno not in _NO_ALLOCATION:
                raise

    def sync(self, descriptor: int) -> None:
        """Down to the device; then out of the cache, so that reading back tests the device."""
        command = getattr(fcntl, "F_FULLFSYNC", None)  # macOS, where fsync stops at the drive's own cache
        if command is None:
            os.fsync(descriptor)
        else:
            fcntl.fcntl(descriptor, command)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def sync_directory(self, path: Path) -> None:
        """Makes the names inside `path` durable: without it a finished rename can be lost with the power."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def open(self, path: Path) -> int:
        """For reading; a symbolic link is refused, and a pipe cannot make us wait."""
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


DISK = Disk()


def write_durably(path: Path, chunks: Iterable[memoryview], size: int, disk: Disk = DISK) -> str:
    """A new file, on the device when this returns; its sha256, taken from the buffers on their way out."""
    digest = hashlib.sha256()
    descriptor = disk.create(path)
    try:
        disk.allocate(descriptor, size)
        for chunk in chunks:
            digest.update(chunk)
            _write_all(descriptor, chunk, disk)
        # After an error here the pages count as clean and a second fsync would lie (ATC'20): never retry.
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)
    return digest.hexdigest()


def _write_all(descriptor: int, chunk: memoryview, disk: Disk) -> None:
    rest = chunk
    while rest.nbytes:
        written = disk.write(descriptor, rest)
        if written <= 0:
            raise OSError(errno.EIO, f"the disk took {written} of {rest.nbytes} bytes")
        rest = rest[written:]


def write_atomically(path: Path, content: bytes, disk: Disk = DISK) -> None:
    """The old content or the new one, whole, whatever happens in between."""
    replace_atomically(path, [memoryview(content)], len(content), disk)


def replace_atomically(path: Path, chunks: Iterable[memoryview], size: int = 0, disk: Disk = DISK) -> None:
    """As `write_atomically`, for what need not fit into memory; a `size` that is known is taken from the disk first."""
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{secrets.token_hex(4)}")
    try:
        write_durably(temporary, chunks, size, disk)
        disk.rename(temporary, path)
    except Exception:
        with contextlib.suppress(OSError):
            disk.unlink(temporary)
        raise
    disk.sync_directory(path.parent)


def make_directories(path: Path, disk: Disk = DISK) -> None:
    """`path` and its missing parents, each of them durable."""
    if path.is_dir():
        return
    make_directories(path.parent, disk)
    with contextlib.suppress(FileExistsError):
        disk.make_directory(path)
    disk.sync_directory(path.parent)


def remove_tree(path: Path, disk: Disk = DISK) -> None:
    """A file, a link or a directory with all it holds; links are removed and never followed."""
    if path.is_symlink() or not path.is_dir():
        disk.unlink(path)
        return
    for child in sorted(path.iterdir()):
        remove_tree(child, disk)
    disk.remove_directory(path)


@contextmanager
def open_plain(path: Path, disk: Disk = DISK) -> Iterator[tuple[int, int]]:
    """Descriptor and size of a regular file, of one opening: nothing can be swapped after the check."""
    try:
        descriptor = disk.open(path)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise CheckpointError(f"{path} is not a regular file (mode {status.st_mode:o}).")
            yield descriptor, status.st_size
        finally:
            disk.close(descriptor)
    except OSError as error:
        raise _reading_failed(path, error) from error


def read_plain(path: Path, most: int, disk: Disk = DISK) -> bytes:
    """The content of a regular file of at most `most` bytes."""
    with open_plain(path, disk) as (descriptor, size):
        if size > most:
            raise CheckpointError(f"{path} has {size:,} bytes; at most {most:,} were expected.")
        return b"".join(read_chunks(descriptor, size, disk))


def read_chunks(descriptor: int, size: int, disk: Disk = DISK) -> Iterator[bytes]:
    """At most `size` bytes, also of a file that grows meanwhile."""
    while size > 0 and (chunk := disk.read(descriptor, min(size, CHUNK))):
        size -= len(chunk)
        yield chunk


def _reading_failed(path: Path, error: OSError) -> CheckpointError:
    if error.errno in _FIXABLE:
        return Unreadable(
            f"{path} cannot be read now: {error.strerror}. It may be whole and was left as it is: "
            "fix the cause (owner, mode, open files, memory) and start again."
        )
    known = {
        errno.ENOENT: f"{path} is missing.",
        errno.ENOTDIR: f"{path.parent} is a file; a checkpoint is a folder with {path.name} inside.",
        errno.ELOOP: f"{path} is a symbolic link; a regular file was expected.",
    }
    return CheckpointError(known.get(error.errno or 0, f"{path} cannot be read: {error.strerror}."))


class RunLock:
    """One process per run folder: an flock, which the kernel releases however that process ends."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "lock"
        self.guarded = False  # stays False inside the lock where the filesystem has no locks
        self._descriptor: int | None = None

    def __enter__(self) -> RunLock:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.guarded = True
        except OSError as error:
            holder = os.pread(descriptor, 512, 0).decode(errors="replace").split()
            if error.errno not in _NO_LOCKS:
                os.close(descriptor)
                raise self._busy(holder) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {os.uname().nodename}\n".encode(), 0)
        self._descriptor = descriptor
        # A forked worker that outlives us would hold the lock; closing its copy leaves ours locked.
        mine = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: (lock := mine()) and lock._close())
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None and self.guarded:
            os.ftruncate(self._descriptor, 0)  # the file stays: removing it would let two processes lock two files
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # also where a forked child still has a copy
        self._close()

    def _close(self) -> None:
        descriptor, self._descriptor, self.guarded = self._descriptor, None, False
        if descriptor is not None:
            os.close(descriptor)

    def _busy(self, holder: list[str]) -> RunBusy:
        who = f"process {holder[0]} on {holder[1]}" if len(holder) == 2 else "another process"
        return RunBusy(
            f"Run folder {self.path.parent} is in use by {who}. "
            "Wait until it ends, stop it, or choose another folder with --run."
        )
