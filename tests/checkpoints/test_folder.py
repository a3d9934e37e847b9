"""Which checkpoints are kept, and how the others leave."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from moments import QUICK, assert_equal, newest, save, snapshot

from safelight.checkpoints.folder import clean, retain, steps


def test_steps_are_compared_as_numbers(tmp_path: Path) -> None:
    save(tmp_path, 99_999_999, 100_000_001, 5)
    assert steps(tmp_path) == [5, 99_999_999, 100_000_001]
    assert newest(tmp_path).step == 100_000_001


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


def test_one_that_was_being_replaced_is_still_found(tmp_path: Path) -> None:
    save(tmp_path, 1, 2)
    (tmp_path / "step_00000002").rename(tmp_path / ".replaced-step_00000002-ab12")
    assert_equal(newest(tmp_path), snapshot(2))
    clean(tmp_path)
    assert steps(tmp_path) == [1, 2]
    shutil.copytree(tmp_path / "step_00000002", tmp_path / ".replaced-step_00000002-ab12")
    clean(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step_00000001", "step_00000002"]
