"""Files that are written whole or not at all, folders that are made durable, and what is moved aside or removed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from safelight.files.disk import DISK, TEMPORARY, Disk, is_folder, list_names, status_of


def write_durably(path: Path, chunks: Iterable[memoryview], size: int, disk: Disk = DISK, *, sync: bool = True) -> str:
    """A new file, on the device when this returns; its sha256, taken from the buffers on their way out."""
    digest = hashlib.sha256()
    descriptor = disk.create(path)
    try:
        disk.allocate(descriptor, size)
        for chunk in chunks:
            digest.update(chunk)
            _write_all(descriptor, chunk, disk)
        if sync:
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


def write_atomically(path: Path, content: bytes, disk: Disk = DISK, *, sync: bool = True) -> None:
    """The old content or the new one, whole, whatever happens in between. `sync`: also after a loss of power."""
    replace_atomically(path, [memoryview(content)], len(content), disk, sync=sync)


def replace_atomically(
    path: Path, chunks: Iterable[memoryview], size: int = 0, disk: Disk = DISK, *, sync: bool = True
) -> None:
    """As `write_atomically`, for what need not fit into memory; a `size` that is known is taken from the disk first.
    A link that stands there, symbolic or hard, is replaced and what it leads to is left as it was."""
    temporary = temporary_name(path)
    try:
        write_durably(temporary, chunks, size, disk, sync=sync)
        disk.rename(temporary, path)
    except BaseException:  # also Ctrl-C
        with contextlib.suppress(OSError):
            disk.unlink(temporary)
        raise
    if sync:
        disk.sync_directory(path.parent)


def temporary_name(path: Path) -> Path:
    """Beside `path`; nobody can know it before."""
    begin = os.fsencode(path.name)[:200].decode(errors="ignore")  # a name has room for 255 bytes, not characters
    return path.with_name(f"{TEMPORARY}{begin}-{secrets.token_hex(8)}")


def create_file(path: Path, disk: Disk = DISK) -> BinaryIO:
    """A file that was not there, open for writing and reading."""
    return os.fdopen(disk.create(path), "w+b")


def append_to(path: Path, disk: Disk = DISK) -> BinaryIO:
    """A regular file with no other names that is there, open for appending, without a buffer."""
    with disk._at(path) as (folder, name):
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=folder)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"{path} is not a regular file of this folder alone", str(path))
    return os.fdopen(descriptor, "ab", buffering=0)


def make_directories(path: Path, disk: Disk = DISK) -> None:
    """`path` and its missing parents, each of them durable. A root is never made: if it is gone, somebody took it."""
    if is_folder(path, disk):
        return
    if path == disk.root:
        number = errno.ENOTDIR if os.path.lexists(path) else errno.ENOENT
        raise OSError(number, os.strerror(number), str(path))
    make_directories(path.parent, disk)
    try:
        disk.make_directory(path)
    except FileExistsError:
        if not is_folder(path, disk):  # a file has the name, or a link that leads nowhere
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from None
    disk.sync_directory(path.parent)


def remove_tree(path: Path, disk: Disk = DISK) -> None:
    """A file, a link or a directory with all it holds; links are removed and never followed."""
    status = status_of(path, disk)
    if status is None or not stat.S_ISDIR(status.st_mode):
        disk.unlink(path)
        return
    inner = Disk(path.parent) if disk.root is None else disk
    for name in list_names(path, inner):
        remove_tree(path / name, disk)
    disk.remove_directory(path)


def try_to_remove(path: Path, disk: Disk = DISK) -> None:
    with contextlib.suppress(OSError):
        remove_tree(path, disk)


def move_aside(path: Path, disk: Disk = DISK) -> Path:
    """Out of the way under a new name beside it, and not deleted."""
    target = path.with_name(f"{path.name}.aside-{secrets.token_hex(4)}")
    disk.rename(path, target)
    return target
