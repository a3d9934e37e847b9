"""Reading what may be anything: opened without waiting, only if it is a regular file, never more than was expected."""

from __future__ import annotations

import errno
import json
import os
import select
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safelight.errors import CheckpointError
from safelight.files.disk import DISK, Disk, LinkInside

if TYPE_CHECKING:
    import numpy as np

CHUNK = 8 << 20  # bytes per system call: large enough for speed, small enough that hashing and writing interleave
LARGEST_JSON = 64 << 20
MAX_PICTURE_BYTES = 64 << 20  # of a picture that a run drew
PATIENCE = 3.0  # seconds
_FIXABLE = {errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM}


class Unreadable(CheckpointError):
    """Could not be read now, which says nothing about its content: it must not be set aside as damaged."""


def open_regular(path: Path, disk: Disk = DISK) -> tuple[int, int]:
    """Descriptor and size of a regular file, for a caller that closes it."""
    try:
        descriptor = disk.open(path)
    except OSError as error:
        raise _reading_failed(path, error) from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        disk.close(descriptor)
        raise CheckpointError(f"{path} is not a regular file (mode {status.st_mode:o}).")
    return descriptor, status.st_size


@contextmanager
def open_plain(path: Path, disk: Disk = DISK) -> Iterator[tuple[int, int]]:
    """Descriptor and size of a regular file, of one opening: nothing can be swapped after the check."""
    try:
        descriptor, size = open_regular(path, disk)
        try:
            yield descriptor, size
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


def read_anything(path: Path, most: int) -> bytes:
    """At most so many bytes of what a user named, over links and from pipes too: `<(command)` is one. A pipe that
    nothing comes from is given up."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        content, plain = bytearray(), stat.S_ISREG(os.fstat(descriptor).st_mode)
        while len(content) < most:
            if not plain and not select.select([descriptor], [], [], PATIENCE)[0]:
                raise TimeoutError(errno.ETIMEDOUT, f"nothing came from it within {PATIENCE:g} s")
            chunk = os.read(descriptor, min(CHUNK, most - len(content)))
            if not chunk:
                break
            content += chunk
    finally:
        os.close(descriptor)
    if not content and not plain:
        raise OSError(errno.ENODATA, "it is a pipe or device that nothing comes from")
    return bytes(content)


def read_json(path: Path, disk: Disk = DISK, *, most: int = LARGEST_JSON) -> Any:
    """What a JSON file holds; None if there is no file that can be read."""
    try:
        return json.loads(read_plain(path, most, disk))
    except (CheckpointError, ValueError, RecursionError):
        return None


def open_mapped(path: Path, kind: np.dtype, shape: tuple[int, ...], disk: Disk = DISK) -> np.ndarray:
    """A regular file as an array that is read when it is touched."""
    import numpy as np  # help and refusals answer without it

    with open_plain(path, disk) as (descriptor, size):
        if size != int(np.prod(shape, dtype=object)) * kind.itemsize:
            raise CheckpointError(f"{path} has {size:,} bytes, which is not {shape} of {kind}.")
        if not size:
            return np.empty(shape, kind)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            found = np.memmap(file, kind, "r", shape=shape)
        found.filename = str(path)  # numpy knows only the descriptor
        return found


def read_tensor_file(path: Path, most: int, disk: Disk = DISK) -> tuple[bytes, dict[str, str]]:
    """The bytes of a safetensors file and its metadata: read whole, since a file that is cut while it is mapped ends
    the process."""
    raw = read_plain(path, most, disk)
    length = int.from_bytes(raw[:8], "little")
    try:
        found = json.loads(raw[8 : 8 + length]).get("__metadata__", {})
    except (ValueError, RecursionError, AttributeError) as error:
        raise CheckpointError(f"{path} is not a safetensors file.") from error
    return raw, found if isinstance(found, dict) else {}


def _reading_failed(path: Path, error: OSError) -> CheckpointError:
    if isinstance(error, LinkInside):
        return CheckpointError(f"{error}.")
    if error.errno in _FIXABLE:
        return Unreadable(
            f"{path} cannot be read now: {error.strerror}. It may be whole and was left as it is: "
            "fix the cause (owner, mode, open files, memory) and start again."
        )
    messages = {
        errno.ENOENT: f"{path} is missing.",
        errno.ENOTDIR: f"{path.parent} is a file; a checkpoint is a folder with {path.name} inside.",
        errno.ELOOP: f"{path} is a symbolic link; a regular file was expected.",
    }
    return CheckpointError(messages.get(error.errno or 0, f"{path} cannot be read: {error.strerror}."))
