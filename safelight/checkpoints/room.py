"""Room on the disk: bytes, inodes and file handles that a save needs, and what is missing of them, in words."""

from __future__ import annotations

import errno
import resource
from dataclasses import dataclass
from pathlib import Path

from safelight.files import Disk
from safelight.words import megabytes

RESERVE = 32 << 20  # bytes left free, so that the record and the last messages of a run still fit
RESERVE_FILES = 8  # inodes left free, for the same
FEW_FILES = 1000  # inodes: where there are more, they are not worth a word
_NO_HANDLES = (errno.EMFILE, errno.ENFILE)


@dataclass(frozen=True, slots=True)
class Room:
    """What something needs."""

    size: int = 0
    files: int = 0  # folders too

    def __add__(self, other: Room) -> Room:
        return Room(self.size + other.size, self.files + other.files)


def shortage(folder: Path, needed: Room, disk: Disk) -> str | None:
    """What is missing for it, in words; None if there is enough or nothing is known."""
    needed += Room(RESERVE, RESERVE_FILES)
    free, names = disk.free(folder), disk.free_files(folder)
    if free is not None and free < needed.size:
        return f"the disk has {megabytes(free)} free and {megabytes(needed.size)} are needed"
    if names is not None and names < needed.files:
        return f"the disk has {names:,} inodes free (names of files) and {needed.files:,} are needed"
    return None


def describe_free(folder: Path, disk: Disk, error: BaseException | None = None) -> str:
    """What is free now. `error`: what failed, which may have had another reason."""
    cause = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__
    if cause is not None and cause.errno in _NO_HANDLES:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"no more files can be opened (this process may open {most:,}: ulimit -n)"
    try:
        free, names = disk.free(folder), disk.free_files(folder)
    except OSError:
        free = names = None
    inodes = f" and {names:,} inodes" if names is not None and names < FEW_FILES else ""
    return "free space is unknown" if free is None else f"{megabytes(free)}{inodes} are free"
