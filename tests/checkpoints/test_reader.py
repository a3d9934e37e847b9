"""Only what is as it was written is loaded, and the newest one that is."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest
from moments import QUICK, assert_equal, newest, save, snapshot

from safelight.checkpoints.folder import steps
from safelight.checkpoints.reader import load, load_newest
from safelight.checkpoints.writer import write
from safelight.errors import CheckpointError
from safelight.files import Unreadable
from torture.disks import QuickDisk

# Saving and loading


def test_a_checkpoint_comes_back_whole_from_the_real_disk(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "checkpoints"
    path = write(folder, snapshot(1200))
    assert path == folder / "step_00001200"
    assert sorted(p.name for p in path.iterdir()) == [
        "ema.safetensors", "manifest.json", "model.safetensors", "optimizer.safetensors", "state.json",
    ]  # fmt: skip
    assert_equal(load(path), snapshot(1200))
    assert_equal(newest(folder), snapshot(1200))
    assert [p.name for p in folder.iterdir()] == ["step_00001200"]


# Finding the newest


def test_nothing_there_is_none(tmp_path: Path) -> None:
    assert load_newest(tmp_path / "missing", pytest.fail) is None
    assert load_newest(tmp_path, pytest.fail) is None
    (tmp_path / ".tmp-00000001-aa").mkdir()
    (tmp_path / "notes.txt").touch()
    assert load_newest(tmp_path, pytest.fail) is None


def test_a_bad_one_is_set_aside_and_the_next_is_loaded(tmp_path: Path) -> None:
    save(tmp_path, 1, 2, 3)
    (tmp_path / "step_00000003" / "ema.safetensors").unlink()
    (tmp_path / "step_00000002" / "state.json").write_text("{}")
    said: list[str] = []
    loaded = load_newest(tmp_path, said.append)
    assert loaded is not None
    assert loaded.step == 1
    assert len(said) == 2
    assert "ema.safetensors is missing" in said[0]
    assert "has 2 bytes" in said[1]
    assert steps(tmp_path) == [1]
    assert len(list(tmp_path.glob(".corrupt-step_*"))) == 2


def test_only_bad_ones_is_an_error_now_and_at_every_later_start(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    for path in tmp_path.glob("step_*"):
        (path / "manifest.json").write_bytes(b"")
    for words in ("2 are damaged. .*not valid JSON.*move .* away", "2 are damaged"):
        with pytest.raises(CheckpointError, match=words):
            load_newest(tmp_path, lambda words: None)
    write(tmp_path, snapshot(3), disk=QUICK)
    assert newest(tmp_path).step == 3


def test_a_file_or_dangling_link_under_the_name_of_a_step_counts_as_bad(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / "step_00000002").write_text("hello")
    (tmp_path / "step_00000003").symlink_to(tmp_path / "nowhere")
    said: list[str] = []
    loaded = load_newest(tmp_path, said.append)
    assert loaded is not None
    assert (loaded.step, len(said)) == (1, 2)


class Stubborn(QuickDisk):
    def __init__(self, number: int) -> None:
        self.number = number

    def open(self, path: Path) -> int:
        if "step_00000002" in str(path):
            raise OSError(self.number, os.strerror(self.number))
        return super().open(path)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EMFILE, errno.ENOMEM])
def test_what_the_person_can_mend_stops_and_changes_nothing(tmp_path: Path, number: int) -> None:
    save(tmp_path, 1, 2)
    with pytest.raises(Unreadable, match="left as it is"):
        load_newest(tmp_path, pytest.fail, disk=Stubborn(number))
    assert newest(tmp_path).step == 2


def test_an_unreadable_sector_is_a_bad_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    said: list[str] = []
    loaded = load_newest(tmp_path, said.append, disk=Stubborn(errno.EIO))
    assert loaded is not None
    assert loaded.step == 1
    assert "Input/output error" in said[0]


class ReadOnly(QuickDisk):
    def rename(self, source: Path, target: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def test_on_a_read_only_disk_the_older_one_is_loaded_all_the_same(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    (tmp_path / "step_00000002" / "manifest.json").unlink()
    said: list[str] = []
    loaded = load_newest(tmp_path, said.append, disk=ReadOnly())
    assert loaded is not None
    assert loaded.step == 1
    assert "could not be set aside" in said[0]


# Bit rot


def test_every_flip_and_cut_is_found_and_the_previous_one_loaded(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    path, draw, tried = tmp_path / "step_00000002", random.Random(0), 0
    for file in sorted(path.iterdir()):
        whole = file.read_bytes()
        for trial in range(30):
            damaged = bytearray(whole)
            damaged[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
            cut = whole[: draw.randrange(len(whole))] + b"\0" * (trial % 2)
            for content in (bytes(damaged), cut, whole + b"\0" * (1 + trial % 9)):
                tried += 1
                file.write_bytes(content)
                loaded = load_newest(tmp_path, lambda words: None, disk=QUICK)
                assert loaded is not None
                assert loaded.step == 1, f"{file.name}: not found by trial {trial}"
                next(tmp_path.glob(".corrupt-*")).rename(path)
        file.write_bytes(whole)
    assert tried == 450
    assert_equal(newest(tmp_path), snapshot(2))


# Keeping and cleaning


def test_a_step_can_be_written_again(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    write(tmp_path, snapshot(2, version=1), disk=QUICK)
    assert_equal(newest(tmp_path), snapshot(2, version=1))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step_00000001", "step_00000002"]
