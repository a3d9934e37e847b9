from __future__ import annotations

import errno
import resource
from pathlib import Path

import pytest

from safelight.checkpoints.room import RESERVE, RESERVE_FILES, Room, describe_free, shortage
from safelight.checkpoints.snapshot import prepare
from safelight.checkpoints.writer import Writer, commit
from safelight.errors import CheckpointError
from torture.disks import QuickDisk
from torture.moments import moment


class Small(QuickDisk):
    """So many bytes and inodes are free."""

    def __init__(self, size: int | None, files: int | None) -> None:
        self.size, self.files = size, files

    def free(self, folder: Path) -> int | None:
        return self.size

    def free_files(self, folder: Path) -> int | None:
        return self.files


@pytest.mark.parametrize(
    ("size", "files", "words"),
    [
        (None, None, None),
        (RESERVE + 10, RESERVE_FILES + 3, None),
        (RESERVE + 9, 1000, "MB are needed"),
        (RESERVE + 10, RESERVE_FILES + 2, "the disk has 10 inodes free (names of files) and 11 are needed"),
    ],
)
def test_bytes_and_inodes_are_counted(tmp_path: Path, size: int, files: int, words: str | None) -> None:
    found = shortage(tmp_path, Room(4, 1) + Room(6, 2), Small(size, files))
    assert (found is None) == (words is None)
    assert words is None or words in str(found)


def test_the_next_checkpoint_comes_first(tmp_path: Path) -> None:
    """A snapshot that would leave too few inodes for it is not made; without anything to leave, it is."""
    disk, files = Small(None, 30), prepare(moment(1))
    with pytest.raises(CheckpointError, match=r"30 inodes free .* with those of the next checkpoint"):
        commit(tmp_path / "ema", files, disk, None, Room(0, 20))
    assert not list((tmp_path / "ema").iterdir())
    commit(tmp_path / "ema", files, disk)


def test_a_writer_names_inodes(tmp_path: Path) -> None:
    said = list[str]()
    writer = Writer(tmp_path / "saved", last=2, every=0, say=said.append, disk=Small(600 << 20, 3))
    writer.submit(moment(1), None)
    writer.wait()
    assert "3 inodes are free" in said[0]
    assert writer.failures == 1


def test_file_handles_are_named(tmp_path: Path) -> None:
    error = CheckpointError("not saved")
    error.__cause__ = OSError(errno.EMFILE, "Too many open files")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert f"may open {most:,}: ulimit -n" in describe_free(tmp_path, Small(5 << 20, 9), error)
    assert describe_free(tmp_path, Small(5_000_000, None)).endswith("MB are free")
    assert describe_free(tmp_path / "gone", QuickDisk()) == "free space is unknown"
