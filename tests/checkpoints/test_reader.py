from __future__ import annotations

import errno
import math
import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from moments import NAN, QUICK, assert_equal, newest, poisoned, save, snapshot

from safelight.checkpoints.folder import clean, retain, steps
from safelight.checkpoints.reader import load, load_newest
from safelight.checkpoints.snapshot import Snapshot
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


def test_same_snapshot_gives_same_bytes(tmp_path: Path) -> None:
    first, second = (write(tmp_path / name, snapshot(7), disk=QUICK) for name in "ab")
    for file in first.iterdir():
        assert file.read_bytes() == (second / file.name).read_bytes()


FLOATS = [0.1, 1 / 3, -0.0, 5e-324, 1.7976931348623157e308, NAN, math.inf, -math.inf, 2.0**-1074, 1e22]


def test_every_float_of_the_state_comes_back(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    many = draw.integers(0, 2**64, 2000, dtype=np.uint64).view(np.float64).tolist()
    path = write(tmp_path, snapshot(1, values=FLOATS + many, numpy=np.float64(0.1), big=2**200, none=None), disk=QUICK)
    state = load(path).state
    assert np.array_equal(np.array(state["values"]), np.array(FLOATS + many), equal_nan=True)
    assert math.copysign(1, state["values"][2]) == -1
    assert (state["numpy"], state["big"], state["none"]) == (0.1, 2**200, None)


def test_further_files_and_empty_ones_are_kept(tmp_path: Path) -> None:
    moment = snapshot(1)
    moment.tensors["ema-0.05"] = {"a": torch.ones(2, dtype=torch.bfloat16)}
    moment.tensors["journal"] = {}
    assert_equal(load(write(tmp_path, moment, disk=QUICK)), moment)


REFUSED: dict[str, tuple[Snapshot, str]] = {
    "NaN in the model": (poisoned("model", NAN), "model tensor weight holds 1 NaN or Inf among 5"),
    "Inf in the EMA": (poisoned("ema", math.inf), "ema tensor weight holds 1"),
    "-Inf in half precision": (poisoned("model", -math.inf, torch.bfloat16), "holds 1"),
    "NaN in eight bits": (poisoned("model", NAN, torch.float8_e5m2), "holds 1"),
    "negative step": (snapshot(-1), "a step is a number"),
    "key that is no text": (snapshot(1, table={1: 2}), "the key 1 is a int, not text"),
    "tensor in the state": (snapshot(1, x=[torch.ones(1)]), r"state.x\[0\] is a Tensor"),
    "integer that JSON cannot read": (snapshot(1, x=10**5000), "cannot be written as JSON"),
    "state too large": (snapshot(1, x="x" * (9 << 20)), "belong among the tensors"),
    "stem with a slash": (Snapshot(1, {"../x": {}}, {}, {}), "not a plain lower-case"),
    "stem in capitals": (Snapshot(1, {"Model": {}}, {}, {}), "not a plain lower-case"),
    "environment that is no JSON": (
        Snapshot(1, {}, {}, {"device": torch.device("cpu")}),
        "environment.device",
    ),
}


@pytest.mark.parametrize(("moment", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path, moment: Snapshot, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        write(tmp_path / "checkpoints", moment, disk=QUICK)
    assert not (tmp_path / "checkpoints").exists()


def test_a_state_that_holds_itself_is_refused(tmp_path: Path) -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(CheckpointError, match="cannot be written"):
        write(tmp_path, snapshot(1, loop=loop), disk=QUICK)


@pytest.mark.parametrize(
    "moment",
    [
        poisoned("model", NAN, allow_nonfinite=True),
        poisoned("optimizer", NAN),
        poisoned("model", 3e38),
        poisoned("model", 7, torch.int64),
    ],
)
def test_near_misses_are_saved(tmp_path: Path, moment: Snapshot) -> None:
    assert_equal(load(write(tmp_path, moment, disk=QUICK)), moment)


# Finding the newest


def test_nothing_there_is_none(tmp_path: Path) -> None:
    assert load_newest(tmp_path / "missing", pytest.fail) is None
    assert load_newest(tmp_path, pytest.fail) is None
    (tmp_path / ".tmp-00000001-aa").mkdir()
    (tmp_path / "notes.txt").touch()
    assert load_newest(tmp_path, pytest.fail) is None


def test_steps_are_compared_as_numbers(tmp_path: Path) -> None:
    save(tmp_path, 99_999_999, 100_000_001, 5)
    assert steps(tmp_path) == [5, 99_999_999, 100_000_001]
    assert newest(tmp_path).step == 100_000_001


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


@pytest.mark.parametrize(
    ("there", "last", "every", "best", "left"),
    [
        ([1, 2, 3, 4, 5], 2, 0, None, [4, 5]),
        ([1, 2, 3, 4, 5], 1, 0, None, [5]),
        ([1, 2, 3, 4, 5], 0, 0, None, [5]),
        ([1, 2, 3, 4, 5], 2, 2, None, [2, 4, 5]),
        ([1, 2, 3, 4, 5], 2, 0, 1, [1, 4, 5]),
        ([1, 2, 3, 4, 5], 2, 3, 1, [1, 3, 4, 5]),
        ([1, 2, 3], 9, 0, 77, [1, 2, 3]),
        ([], 2, 0, None, []),
    ],
)
def test_retention(tmp_path: Path, there: list[int], last: int, every: int, best: int | None, left: list[int]) -> None:
    save(tmp_path, *there)
    removed = retain(tmp_path, last=last, every=every, best=best, disk=QUICK)
    assert removed == [step for step in there if step not in left]
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"step_{step:08d}" for step in left]


def test_damaged_ones_do_not_count_as_kept(tmp_path: Path) -> None:
    save(tmp_path, 1, 2, 3, 4)
    (tmp_path / "step_00000003" / "model.safetensors").write_bytes(b"cut")
    assert retain(tmp_path, last=2, every=0, best=None, disk=QUICK) == [1]
    assert steps(tmp_path) == [2, 3, 4]
    (tmp_path / "step_00000004" / "manifest.json").unlink()
    (tmp_path / "step_00000002" / "manifest.json").unlink()
    assert retain(tmp_path, last=1, every=0, best=None, disk=QUICK) == []


def test_going_back_gives_up_the_future(tmp_path: Path) -> None:
    save(tmp_path, 10, 20, 30, 15)
    assert retain(tmp_path, last=2, every=10, best=30, now=15, disk=QUICK) == [20, 30]
    assert newest(tmp_path).step == 15


def test_retention_removes_links_and_not_what_they_point_to(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    save(folder, 1, 2)
    (folder / "step_00000001").rename(tmp_path / "archive")
    (folder / "step_00000001").symlink_to(tmp_path / "archive")
    assert retain(folder, last=1, every=0, best=None, disk=QUICK) == [1]
    assert (tmp_path / "archive" / "manifest.json").exists()


def test_cleaning_removes_only_what_is_unfinished(tmp_path: Path) -> None:
    save(tmp_path, 1)
    for name in (".tmp-00000002-aa", ".trash-step_00000003-bb", ".corrupt-step_00000004-cc"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    (tmp_path / ".tmp-run.json-dd").touch()
    clean(tmp_path)
    clean(tmp_path / "missing")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".corrupt-step_00000004-cc", "step_00000001"]


def test_a_step_can_be_written_again(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    write(tmp_path, snapshot(2, version=1), disk=QUICK)
    assert_equal(newest(tmp_path), snapshot(2, version=1))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step_00000001", "step_00000002"]


def test_one_that_was_being_replaced_is_still_found(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    (tmp_path / "step_00000002").rename(tmp_path / ".replaced-step_00000002-ab12")
    assert_equal(newest(tmp_path), snapshot(2))
    clean(tmp_path)
    assert steps(tmp_path) == [1, 2]
    shutil.copytree(tmp_path / "step_00000002", tmp_path / ".replaced-step_00000002-ab12")
    clean(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step_00000001", "step_00000002"]
