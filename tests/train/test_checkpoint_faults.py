"""Crashes and errors at every call, kills, and every power loss that the order of writing allows."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from faulty_disk import (
    FAULTS,
    HIDDEN,
    Died,
    FaultyDisk,
    Op,
    RecordingDisk,
    Tree,
    committed_first,
    flushed_after_sync,
    manifest_first,
    places,
    power_losses,
    put_on_disk,
    without_directory_syncs,
    without_file_syncs,
    without_sync_of_deletion,
)
from moments import QUICK, assert_equal

from safelight.errors import CheckpointError
from safelight.files import Disk
from safelight.train import checkpoint, manifest, retention
from safelight.train.checkpoint import Snapshot, clean, load_newest, retain, write
from safelight.train.snapshot import prepare

Saved = tuple[int, int]  # step, version


def moment(step: int, version: int = 0) -> Snapshot:
    weight = torch.full((4,), step + version / 8)
    return Snapshot(
        step,
        {"model": {"weight": weight}, "ema": {"weight": weight / 2}},
        {"version": version},
        {"threads": 2},
    )


# Crashes and errors at every call


def save_next(folder: Path, disk: Disk) -> None:
    write(folder, moment(3), disk=disk)
    retain(folder, last=2, every=0, best=None, disk=disk)


def save_again(folder: Path, disk: Disk) -> None:
    write(folder, moment(2, version=1), disk=disk)


SAVES: dict[str, tuple[Callable[[Path, Disk], None], Saved, int]] = {
    "next step": (save_next, (3, 0), 65),
    "same step": (save_again, (2, 1), 44),
}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two") / "checkpoints"
    for step in (1, 2):
        write(folder, moment(step), disk=QUICK)
    return folder


def newest(folder: Path) -> Saved:
    """The newest checkpoint, found without a word about a bad one, and equal to what was saved to the bit."""
    loaded = load_newest(folder, pytest.fail, disk=QUICK)
    assert loaded is not None
    assert_equal(loaded, moment(loaded.step, loaded.state["version"]))
    return loaded.step, loaded.state["version"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("which", SAVES)
def test_a_fault_at_every_call_leaves_the_previous_or_the_new_one(
    tmp_path: Path, two: Path, which: str, fault: str
) -> None:
    action, new, calls = SAVES[which]
    numbers = places(fault, lambda disk: action(shutil.copytree(two, tmp_path / "all"), disk))
    assert len(numbers) > (calls if fault == "exit" else 6)
    for at in numbers:
        folder, disk, returned = tmp_path / str(at), FaultyDisk(at, fault), True
        shutil.copytree(two, folder)
        try:
            action(folder, disk)
        except (Died, OSError, CheckpointError):
            returned = False
        assert disk.reached == (at != numbers[-1])
        found = newest(folder)
        assert found == new if returned else found in ((2, 0), new)
        clean(folder, disk=QUICK)
        assert newest(folder) == found
        write(folder, moment(4), disk=QUICK)
        assert newest(folder) == (4, 0)
        assert not list(folder.glob(".*"))
    assert returned


def test_a_lying_disk_is_found_by_reading_back(two: Path, tmp_path: Path) -> None:
    reasons = Counter[str]()
    for at in range(1, 25):
        shutil.copytree(two, tmp_path / str(at))
        try:
            write(tmp_path / str(at), moment(3), disk=FaultyDisk(at, "lying write"))
        except CheckpointError as error:
            reasons["damaged" if "is damaged" in str(error) else "cut or changed"] += 1
    assert reasons["damaged"] >= 5  # the space was taken before: the size is right and the content is not
    assert reasons.total() >= 6


def test_crash_test_can_fail(two: Path, tmp_path: Path) -> None:
    """Negative control: written in place, a crash leaves a bad checkpoint in sight."""
    said: list[str] = []
    for at in range(1, 25):
        shutil.copytree(two, tmp_path / str(at))
        with contextlib.suppress(Died):
            checkpoint._write_files(tmp_path / str(at) / "step_00000003", prepare(moment(3)), FaultyDisk(at, "exit"))
        load_newest(tmp_path / str(at), said.append, disk=QUICK)
    assert len(said) > 15


# Killed for real


def _save_until_killed(folder: Path, report: int) -> None:
    newest_step = (load_newest(folder, lambda words: os._exit(9), disk=QUICK) or moment(0)).step
    clean(folder, disk=QUICK)
    while True:
        newest_step += 1
        write(folder, moment(newest_step), disk=QUICK)
        os.write(report, newest_step.to_bytes(4, "little"))
        retain(folder, last=2, every=0, best=None, disk=QUICK)


def test_kill_at_any_moment_loses_nothing_that_was_reported(tmp_path: Path) -> None:
    draw, last = random.Random(0), 0
    for _ in range(30):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                _save_until_killed(tmp_path / "run", writing)
            finally:
                os._exit(8)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            first = pipe.read(4)  # however slow the machine is, every life saves at least once
            time.sleep(draw.uniform(0.0, 0.02))
            os.kill(child, signal.SIGKILL)
            assert os.waitpid(child, 0)[1] == signal.SIGKILL
            reported = first + pipe.read()
        found = newest(tmp_path / "run")[0]
        assert found >= int.from_bytes(reported[-4:], "little") > last
        last = found  # a save may have ended just before it could be reported
    assert last >= 30


# Power loss


def record(root: Path, script: Callable[[Path, RecordingDisk], None]) -> list[Op]:
    root.mkdir()
    disk = RecordingDisk(root)
    script(root / "checkpoints", disk)
    return disk.log


def as_we_do(folder: Path, disk: RecordingDisk) -> None:
    write(folder, moment(1), disk=disk)
    disk.mark((1, 0))
    write(folder, moment(2), disk=disk)
    disk.mark((2, 0))
    retain(folder, last=1, every=0, best=None, disk=disk)
    write(folder, moment(2, version=1), disk=disk)
    disk.mark((2, 1))
    write(folder, moment(3), disk=disk)
    disk.mark((3, 0))
    retain(folder, last=1, every=0, best=None, disk=disk)


def simply(folder: Path, disk: RecordingDisk) -> None:
    for step in (1, 2):
        write(folder, moment(step), disk=disk)
        disk.mark((step, 0))


def old_deleted_first(folder: Path, disk: RecordingDisk) -> None:
    write(folder, moment(1), disk=disk)
    disk.mark((1, 0))
    retention.discard([folder / "step_00000001"], disk)
    write(folder, moment(2), disk=disk)
    disk.mark((2, 0))


def judge(folder: Path, saved: Saved | None) -> str:
    """One word on what a restart finds after the power came back."""
    if not all(manifest.is_whole(path, QUICK) for path in retention.candidates(folder)):
        return "damaged in sight"
    loaded = load_newest(folder, pytest.fail, disk=QUICK)
    found = (loaded.step, loaded.state["version"]) if loaded else None
    if saved is not None and (found is None or found < saved):
        return "work lost"
    if loaded is not None:
        assert_equal(loaded, moment(*found))  # type: ignore[misc]
    return "good"


def outcomes(log: list[Op], folder: Path, enough: set[str]) -> tuple[Counter[str], bool]:
    """How often each verdict fell, over all disks or until `enough` were seen; and whether all were tried.

    Of disks that differ only inside hidden folders, the first and then every fifth is put to the test.
    """
    folder.mkdir()
    verdicts, complete, known = Counter[str](), True, set[tuple[Any, Tree]]()
    for number, (mark, tree, all_tried) in enumerate(power_losses(log)):
        complete = complete and all_tried
        key = (mark, tuple(item for item in dict(tree).get("checkpoints", ()) if not item[0].startswith(HIDDEN)))
        if key in known and number % 5:
            continue
        known.add(key)
        place = folder / str(number)
        put_on_disk(tree, place)
        verdicts[judge(place / "checkpoints", mark)] += 1
        if not enough and number % 10 == 0:
            go_on(place / "checkpoints")
        shutil.rmtree(place)
        if enough and enough <= verdicts.keys():
            break
    return verdicts, complete


def go_on(folder: Path) -> None:
    """A restart cleans up, saves, and leaves no trace of the power loss."""
    clean(folder, disk=QUICK)
    write(folder, moment(9), disk=QUICK)
    assert newest(folder) == (9, 0)
    assert not list(folder.glob(".*"))


def test_power_loss_at_any_moment_loses_nothing(tmp_path: Path) -> None:
    verdicts, complete = outcomes(record(tmp_path / "run", as_we_do), tmp_path / "disks", set())
    assert verdicts.keys() == {"good"}
    assert complete
    assert verdicts["good"] > 150


SICK: dict[str, tuple[Callable[[Path, RecordingDisk], None], Callable[[list[Op]], list[Op]], set[str]]] = {
    "fsync of files removed": (simply, without_file_syncs, {"damaged in sight"}),
    "fsync of folders removed": (simply, without_directory_syncs, {"work lost", "damaged in sight"}),
    "flush after fsync": (simply, flushed_after_sync, {"damaged in sight"}),
    "old deleted first": (old_deleted_first, list, {"work lost"}),
    "manifest and name before the files": (simply, committed_first, {"damaged in sight"}),
    "deletion not synced": (as_we_do, without_sync_of_deletion, {"damaged in sight"}),
}


@pytest.mark.parametrize(("script", "change", "symptoms"), SICK.values(), ids=SICK.keys())
def test_power_loss_test_can_fail(tmp_path: Path, script: Any, change: Any, symptoms: set[str]) -> None:
    verdicts, _ = outcomes(change(record(tmp_path / "run", script)), tmp_path / "disks", symptoms)
    assert symptoms <= verdicts.keys()


def test_near_miss_manifest_before_its_files_but_all_before_the_rename(tmp_path: Path) -> None:
    verdicts, complete = outcomes(manifest_first(record(tmp_path / "run", simply)), tmp_path / "disks", set())
    assert verdicts.keys() == {"good"}
    assert complete
