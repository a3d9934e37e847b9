"""Power loss: every moment of a recorded sequence of saves, with every fate of what was not yet on the device."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safelight.checkpoints import folder as retention
from safelight.checkpoints import manifest
from safelight.checkpoints import writer as checkpoint
from safelight.checkpoints.folder import clean, retain
from safelight.checkpoints.reader import load_newest
from safelight.checkpoints.snapshot import Snapshot
from safelight.checkpoints.writer import Writer, write
from safelight.training import saving as trainer
from torture.child_run import FewLayers, sit
from torture.moments import QUICK, Saved, difference, moment, newest, refuse
from torture.operations import (
    HIDDEN,
    Op,
    RecordingDisk,
    Tree,
    flushed_after_sync,
    power_losses,
    put_on_disk,
    without_directory_syncs,
    without_file_syncs,
)
from torture.scenario import Outcome, Scenario, Trial
from torture.tiny_run import configure, make_images

LOST, DAMAGED, CORRUPT = "work lost", "damaged in sight", "silently corrupt"

Script = Callable[[Path, RecordingDisk], None]
Known = Callable[[Saved], Snapshot]  # what was saved


def record(root: Path, script: Script) -> list[Op]:
    root.mkdir(parents=True)
    disk = RecordingDisk(root)
    script(root / "checkpoints", disk)
    return disk.log


def as_we_do(folder: Path, disk: RecordingDisk) -> None:
    """Four saves, one of them of the same step, and what is deleted after two of them."""
    for number, (step, version) in enumerate([(1, 0), (2, 0), (2, 1), (3, 0)]):
        write(folder, moment(step, version), disk=disk)
        disk.mark((step, version))
        if number % 2:
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


def train_recorded(root: Path) -> tuple[list[Op], dict[Saved, Snapshot]]:
    """The saves of a real training, by its own writer. Patches this process, which is one of the suite's children."""
    make_images(root / "images")
    run = root / "run"
    run.mkdir()
    disk, known = RecordingDisk(run), dict[Saved, Snapshot]()
    commit = checkpoint.commit

    def marked(folder: Path, files: Any, used: Any, *coordinator: Any) -> Path:
        path = commit(folder, files, used, *coordinator)
        if used is disk:
            disk.mark((files.step, 0))
        return path

    save = Writer._save

    def kept(self: Writer, snapshot: Snapshot, best: int | None, safe: int | None) -> None:
        if self._disk is disk:
            known[snapshot.step, 0] = snapshot
        save(self, snapshot, best, safe)

    def open_writer(folder: Path, **named: Any) -> Writer:
        return Writer(folder, **named, disk=disk) if folder.name == "checkpoints" else Writer(folder, **named)

    checkpoint.commit, Writer._save, trainer.Writer = marked, kept, open_writer  # type: ignore[assignment]
    config = configure(root / "images", train__steps=12, checkpoint__every=3, checkpoint__keep_last=2)
    disk.names[0]["checkpoints"] = -1  # made by the run itself, and durable before the first save
    disk.names[-1] = {}
    disk.log.append(Op("mkdir", 0, name="checkpoints", child=-1))
    disk.log.append(Op("syncdir", 0))
    with open(os.devnull, "w") as nowhere:
        from rich.console import Console

        from safelight.terminal import Terminal

        sit(run, config, FewLayers(), 0, Terminal(Console(file=nowhere)))
    return disk.log, known


def judge(folder: Path, saved: Saved | None, known: Known) -> str:
    """One word on what a restart finds after the power came back, or nothing if all is well."""
    if not all(manifest.is_whole(path, QUICK) for path in retention.candidates(folder)):
        return DAMAGED
    loaded = load_newest(folder, refuse, disk=QUICK)
    found = None if loaded is None else (loaded.step, int(loaded.state.get("version", 0)))
    if saved is not None and (found is None or found < saved):
        return LOST
    return CORRUPT if loaded is not None and found is not None and difference(loaded, known(found)) else ""


def lose_power(
    log: list[Op], folder: Path, known: Known, *, enough: int | None = None, hidden: int = 1
) -> tuple[list[str], int, bool]:
    """(what was wrong, disks that were tried, whether all subsets were) over all disks, or until `enough` were wrong.

    Of disks that differ only inside hidden folders, the first and then one in `hidden` is put to the test.
    """
    folder.mkdir()
    wrong, tried, complete, seen = list[str](), 0, True, set[tuple[Any, Tree]]()
    for number, (mark, tree, all_tried) in enumerate(power_losses(log)):
        complete = complete and all_tried
        key = (mark, tuple(item for item in dict(tree).get("checkpoints", ()) if not item[0].startswith(HIDDEN)))
        if key in seen and number % hidden:
            continue
        seen.add(key)
        tried += 1
        place = folder / str(number)
        put_on_disk(tree, place)
        found = judge(place / "checkpoints", mark, known)
        if found:
            wrong.append(f"{found} (disk {number}, after {mark})")
        elif enough is None and number % 10 == 0:
            go_on(place / "checkpoints")
        shutil.rmtree(place)
        if enough is not None and len(wrong) >= enough:
            break
    return wrong, tried, complete


def go_on(folder: Path) -> None:
    """A restart cleans up, saves, and leaves no trace of the power loss."""
    clean(folder, disk=QUICK)
    write(folder, moment(99), disk=QUICK)
    assert newest(folder) == (99, 0)
    assert not list(folder.glob(".*"))


def drawn(trial: Trial, case: int) -> Script:
    """Saves of random steps, also of one that is there already, and retention after some of them."""

    def script(folder: Path, disk: RecordingDisk) -> None:
        draw, step, version = trial.draw(case), 0, 0
        for _ in range(5):
            again = step > 0 and draw.random() < 0.3
            step, version = (step, version + 1) if again else (step + draw.randint(1, 3), 0)
            write(folder, moment(step, version), disk=disk)
            disk.mark((step, version))
            if draw.random() < 0.6:
                retain(folder, last=draw.randint(1, 2), every=draw.choice([0, 3]), best=None, disk=disk)

    return script


def enumerate_losses(trial: Trial) -> Outcome:
    """Case 0 is a fixed sequence of saves, case 1 those of a real training, the others are drawn."""
    outcome = Outcome()
    for case in trial.cases:
        known: Known = lambda saved: moment(*saved)  # noqa: E731
        if case == 1:
            log, kept = train_recorded(trial.folder / "real")
            known = kept.__getitem__
        else:
            log = record(trial.folder / f"run-{case}", drawn(trial, case) if case else as_we_do)
        wrong, tried, complete = lose_power(log, trial.folder / f"disks-{case}", known)
        outcome.count += tried
        outcome.tally["operations of a real training" if case == 1 else "other operations"] += len(log)
        outcome.tally["sequences of which every subset was tried"] += complete
        outcome.lost += [(case, words) for words in wrong]
    return outcome


def lose_sick(trial: Trial, script: Script, change: Callable[[list[Op]], list[Op]], enough: int = 20) -> Outcome:
    log = change(record(trial.folder / "run", script))
    wrong, tried, _ = lose_power(log, trial.folder / "disks", lambda saved: moment(*saved), enough=enough)
    return Outcome(tried, [(0, words) for words in wrong])


def _control(name: str, deed: str, script: Script, change: Callable[[list[Op]], list[Op]], symptom: str) -> Scenario:
    act = functools.partial(lose_sick, script=script, change=change)
    return Scenario(name, deed, "disks", 1, 1, 1, 1, act, symptom=symptom)


POWER = Scenario(
    "power loss",
    "Every prefix of the filesystem operations of real saves, with the operations that no fsync had made durable kept, "
    "lost or torn in every subset; each such disk is put together and resumed from: nothing that was reported as saved "
    "is missing or damaged.",
    "disks", 2000, 6, 3, 1, enumerate_losses,
)  # fmt: skip
NO_FSYNC = _control("fsync removed", "Files are not flushed before the rename.", simply, without_file_syncs, DAMAGED)
NO_FOLDER_FSYNC = _control(
    "fsync of folders removed", "The rename itself is not made durable.", simply, without_directory_syncs, LOST
)
FLUSHED_LATE = _control(
    "flush after fsync",
    "Bytes leave the process when the file was synced already.",
    simply,
    flushed_after_sync,
    DAMAGED,
)
DELETED_FIRST = _control(
    "old deleted first", "The old checkpoint makes room before the new one is there.", old_deleted_first, list, LOST
)
