"""The seam to the filesystem: every call is made relative to a handle on a folder, and no link below it is followed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TEMPORARY = ".tmp-"  # prefix of everything unfinished
_NO_ALLOCATION = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}  # zfs and some network mounts
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


class LinkInside(OSError):
    """A symbolic link below a run or cache folder, where only real files and folders are used."""

    def __init__(self, path: Path, root: Path) -> None:
        super().__init__(
            errno.ELOOP,
            f"{path} is a symbolic link, and nothing inside {root} may be one: it could lead to files of somebody "
            "else. Remove the link, or put what it leads to in its place",
        )

    def __str__(self) -> str:
        return str(self.strerror)


class Disk:
    """Every filesystem call of saving and loading, so that a test can fail, crash or record each of them.

    `root`: the folder that a user named. It may be reached over links; below it none is followed, and nothing outside
    of it is touched. Without a root, the folder that a path lies in counts as named by the user."""

    root: Path | None = None

    def __init__(self, root: Path | None = None) -> None:
        self.root = root

    write = staticmethod(os.write)
    close = staticmethod(os.close)
    read = staticmethod(os.read)

    def make_directory(self, path: Path) -> None:
        with self._at(path) as (folder, name):
            os.mkdir(name, dir_fd=folder)

    def rename(self, source: Path, target: Path) -> None:
        with self._at(source) as (old, name), self._at(target) as (new, to):
            os.replace(name, to, src_dir_fd=old, dst_dir_fd=new)

    def unlink(self, path: Path) -> None:
        with self._at(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def remove_directory(self, path: Path) -> None:
        with self._at(path) as (folder, name):
            os.rmdir(name, dir_fd=folder)

    def free(self, folder: Path) -> int | None:
        """Bytes that this user may still write, or None if the filesystem does not say."""
        status = os.statvfs(folder)
        return status.f_bavail * status.f_frsize if status.f_blocks else None

    def free_files(self, folder: Path) -> int | None:
        """Files that this user may still create (inodes), or None if the filesystem has no such limit."""
        status = os.statvfs(folder)
        return status.f_favail if status.f_files else None

    def create(self, path: Path) -> int:
        """A file that was not there, for writing and reading."""
        with self._at(path) as (folder, name):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.open(name, flags, 0o666, dir_fd=folder)

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
        with self._folder(path) as folder:
            descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def open(self, path: Path) -> int:
        """For reading; a symbolic link is refused, and a pipe cannot make us wait."""
        with self._at(path) as (folder, name):
            return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)

    @contextmanager
    def _at(self, path: Path) -> Iterator[tuple[int, str]]:
        """A handle on the folder that `path` lies in, and its name there."""
        if path.name in ("", ".."):
            raise OSError(errno.EINVAL, f"{path} names no file", str(path))
        with self._folder(path.parent) as folder:
            yield folder, path.name

    @contextmanager
    def _folder(self, path: Path) -> Iterator[int]:
        root, parts = (path, ()) if self.root is None else (self.root, _below(path, self.root))
        folder = os.open(root, _FOLDER)
        try:
            for place, part in enumerate(parts, 1):
                try:
                    inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
                except OSError:
                    if _is_link(part, folder):
                        raise LinkInside(root.joinpath(*parts[:place]), root) from None
                    raise
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)


DISK = Disk()


def _below(path: Path, root: Path) -> tuple[str, ...]:
    """The names between a root and a path below it."""
    try:
        parts = path.relative_to(root).parts
    except ValueError:
        try:
            parts = Path(os.path.abspath(path)).relative_to(os.path.abspath(root)).parts
        except ValueError:
            raise OSError(errno.EXDEV, f"{path} lies outside {root}", str(path)) from None
    if ".." in parts:
        raise OSError(errno.EXDEV, f"{path} may lead outside {root}", str(path))
    return parts


def _is_link(name: str, folder: int) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode)
    return False


def status_of(path: Path, disk: Disk = DISK) -> os.stat_result | None:
    """The status of the entry itself, also of a link; None if there is no entry."""
    try:
        with disk._at(path) as (folder, name):
            return os.lstat(name, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_folder(path: Path, disk: Disk = DISK) -> bool:
    """Whether a real folder is there; below the root, a link to one is refused."""
    if disk.root is None or path == disk.root:
        return path.is_dir()
    status = status_of(path, disk)
    if status is not None and stat.S_ISLNK(status.st_mode):
        raise LinkInside(path, disk.root)
    return status is not None and stat.S_ISDIR(status.st_mode)


def list_names(path: Path, disk: Disk = DISK) -> list[str]:
    """The names inside a folder, sorted."""
    with disk._folder(path) as folder:
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        try:
            return sorted(os.listdir(descriptor))
        finally:
            os.close(descriptor)
