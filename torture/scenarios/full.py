"""A disk that fills up and is freed again, under a real training: it never stops, and there is always a checkpoint."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import random
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from safelight.checkpoints import folder as retention
from safelight.checkpoints import manifest
from safelight.checkpoints.writer import Writer
from safelight.config import Config
from safelight.errors import CheckpointError
from safelight.files import DISK, Disk
from safelight.record.history import open_history
from safelight.training import saving as trainer
from torture.child_run import ended, finish, halted, start
from torture.marks import Marks
from torture.scenario import Outcome, Scenario, Trial
from torture.tiny_run import check_end, configure, differing, digest, finals, log_of, make_images, train_alone

STEPS, FILLS, LOOKS = 480, 10, 3
ROOM = 64 << 20  # bytes; the trainer leaves 32 MB of it alone
BALLAST = "ballast"
LONGEST = 60.0  # seconds to wait for a save to fail, or to work again
NEWNS, PRIVATE, RECURSIVE = 0x20000, 1 << 18, 1 << 14


@contextmanager
def small_disk(place: Path) -> Iterator[bool]:
    """A tmpfs that this process and its children alone see; False where that is not allowed."""
    place.mkdir()
    library = ctypes.CDLL(None, use_errno=True)
    size = f"size={ROOM}".encode()
    mounted = (
        library.unshare(NEWNS) == 0
        and library.mount(b"none", b"/", None, PRIVATE | RECURSIVE, None) == 0
        and library.mount(b"tmpfs", bytes(place), b"tmpfs", 0, size) == 0
    )
    try:
        yield mounted
    finally:
        if mounted:
            library.umount2(bytes(place), 2)


class PlayedFull(Disk):
    """Where nothing may be mounted: has no room while a flag is up. The record is then not put to the test."""

    def __init__(self, flag: Path) -> None:
        self._flag = flag

    def free(self, folder: Path) -> int | None:
        return 0 if self._flag.exists() else super().free(folder)

    def create(self, path: Path) -> int:
        if self._flag.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().create(path)

    def patch(self) -> None:
        trainer.Writer = functools.partial(Writer, disk=self)  # type: ignore[misc]


def fill(disk: Path, *, mounted: bool = True) -> None:
    """To the last byte."""
    if not mounted:
        (disk / BALLAST).touch()
        return
    with open(disk / BALLAST, "ab") as file:
        while free := DISK.free(disk):
            with contextlib.suppress(OSError):
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, free)


def empty(disk: Path) -> None:
    (disk / BALLAST).unlink(missing_ok=True)


def has_checkpoint(run: Path) -> bool:
    return any(manifest.is_whole(path) for path in retention.candidates(run / "checkpoints"))


def look(child: int, run: Path) -> bool:
    """At one instant."""
    with halted(child):
        return has_checkpoint(run)


def fill_and_free(trial: Trial) -> Outcome:
    """A case is a run whose disk fills ten times."""
    make_images(trial.folder / "images")
    config = configure(
        trial.folder / "images", train__steps=STEPS, checkpoint__every=8, sample__every=240, ema__snapshots=2
    )
    train_alone(trial.folder / "reference", config)
    whole, outcome = finals(trial.folder / "reference", STEPS), Outcome()
    outcome.finals = digest(whole)
    with small_disk(trial.folder / "disk") as mounted:
        for case in trial.cases:
            try:
                _torture(trial.folder / "disk", mounted, config, whole, trial.draw(case), outcome)
            except (AssertionError, CheckpointError) as error:
                outcome.lost.append((case, str(error)))
            shutil.rmtree(trial.folder / "disk" / "run", ignore_errors=True)
            empty(trial.folder / "disk")
    return outcome


def _torture(
    disk: Path, mounted: bool, config: Config, whole: dict[str, str], draw: random.Random, outcome: Outcome
) -> None:
    run, marks = disk / "run", Marks()
    log_of(run).unlink(missing_ok=True)
    change = None if mounted else PlayedFull(disk / BALLAST).patch
    child = start(run, config, marks=marks, log=log_of(run), change=change)
    try:
        _wait(child, lambda: marks.saves_done > 0, run)
        for _ in range(FILLS):
            until = marks.step + draw.randint(2, 10)
            _wait(child, lambda until=until: marks.step >= until, run)
            step, failed = marks.step, marks.saves_failed
            fill(disk, mounted=mounted)
            outcome.count += 1
            outcome.tally["of a tmpfs" if mounted else "played by a faulty disk"] += 1
            for _ in range(LOOKS):
                time.sleep(draw.uniform(0.0, 0.04))
                assert look(child, run), "there was an instant without a whole checkpoint"
                outcome.tally["instants at which a whole checkpoint was there"] += 1
            _wait(child, lambda failed=failed, step=step: marks.saves_failed > failed and marks.step > step + 4, run)
            outcome.tally["saves that failed"] += marks.saves_failed - failed
            outcome.tally["steps trained on a full disk"] += marks.step - step
            assert look(child, run), "there was an instant without a whole checkpoint"
            empty(disk)
            done = marks.saves_done
            _wait(child, lambda done=done: marks.saves_done > done, run)
        check_end(run, finish(child))
    except AssertionError:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            finish(child, 0)
        raise
    other = differing(whole, finals(run, STEPS))
    assert not other, f"other bytes in {other}"
    _check_record(run)


def _wait(child: int, done: Callable[[], bool], run: Path) -> None:
    limit = time.perf_counter() + LONGEST
    while not done():
        status = ended(child, 0.002)
        assert status is None, f"the training ended with {status}: {log_of(run).read_text()[-800:]}"
        assert time.perf_counter() < limit, f"the training stood still: {log_of(run).read_text()[-800:]}"


def _check_record(run: Path) -> None:
    with contextlib.closing(sqlite3.connect(run / "record.sqlite")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",), "the record is damaged"
    with open_history(run / "record.sqlite") as history:
        steps = history.raw("loss/mean")[0].tolist()
    assert steps == [*range(STEPS)], f"the record has {len(steps)} of {STEPS} steps"


FULL = Scenario(
    "full disk",
    "A tmpfs of 64 MB under a real training of 480 steps fills to the last byte ten times a run, and is freed when a "
    "save has failed: the training goes on, a whole checkpoint is there at every instant that was looked at (with the "
    "training halted), the record has every step, and the finals are those of a run with room.",
    "fills", 50, 5, 1, 1, fill_and_free,
)  # fmt: skip
