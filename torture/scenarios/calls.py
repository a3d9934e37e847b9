"""A crash, a full disk, an I/O error and a short answer at every single filesystem call of saving and of loading."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from safelight.checkpoints import writer as checkpoint
from safelight.checkpoints.coordinator import SaveCoordinator
from safelight.checkpoints.folder import clean, retain
from safelight.checkpoints.reader import load_newest
from safelight.checkpoints.snapshot import prepare
from safelight.checkpoints.writer import Writer, write
from safelight.errors import CheckpointError
from safelight.files import Disk
from torture.disks import FAULTS, LOAD_FAULTS, Died, FaultyDisk, places
from torture.moments import QUICK, Saved, moment, newest
from torture.scenario import Outcome, Scenario, Trial


@dataclass(frozen=True, slots=True)
class Deed:
    """Something done to a folder of two checkpoints, and what may be the newest one afterwards."""

    act: Callable[[Path, Disk], object]
    before: Saved
    after: Saved
    faults: tuple[str, ...]


def save_next(folder: Path, disk: Disk) -> None:
    write(folder, moment(3), disk=disk)
    retain(folder, last=2, every=0, best=None, disk=disk)


def save_again(folder: Path, disk: Disk) -> None:
    write(folder, moment(2, version=1), disk=disk)


def save_in_background(folder: Path, disk: Disk) -> None:
    """As the trainer does it, on the thread that the writer would use."""
    writer = Writer(folder, last=2, every=0, say=lambda words: None, disk=disk)
    writer._save(moment(3), None, None)
    assert writer.last_saved == 3 or writer.failures, "a save neither worked nor was given up"
    if writer.last_saved is None:
        raise CheckpointError("given up, and told")


def resume(folder: Path, disk: Disk) -> None:
    clean(folder, disk=disk)
    found = load_newest(folder, lambda words: None, disk=disk)
    assert found is not None, "a resume began from step 0 in silence"


def resume_damaged(folder: Path, disk: Disk) -> None:
    """The newest has one wrong bit, and what was left of a save lies beside it."""
    file = folder / "step_00000003" / "model.safetensors"
    if not file.exists():
        shutil.copytree(folder / "step_00000002", folder / ".tmp-00000004-aa")
        write(folder, moment(3), disk=QUICK)
        file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    resume(folder, disk)


SAVING, LOADING = tuple(FAULTS), tuple(LOAD_FAULTS)
DEEDS = {
    "the next step": Deed(save_next, (2, 0), (3, 0), SAVING),
    "the same step again": Deed(save_again, (2, 0), (2, 1), SAVING),
    "in the background": Deed(save_in_background, (2, 0), (3, 0), SAVING),
    "resume": Deed(resume, (2, 0), (2, 0), LOADING),
    "resume past a damaged one": Deed(resume_damaged, (2, 0), (2, 0), LOADING),
}
PAIRS = [(name, fault) for name, deed in DEEDS.items() for fault in deed.faults]


def fail_at_every_call(trial: Trial, deeds: dict[str, Deed] = DEEDS) -> Outcome:
    """A case is a deed and a fault, which comes at call 1, 2, 3 … until it comes too late."""
    outcome, two = Outcome(), trial.folder / "two"
    for step in (1, 2):
        write(two, moment(step), disk=QUICK)
    pairs = [(name, fault) for name, deed in deeds.items() for fault in deed.faults]
    for case in trial.cases:
        name, fault = pairs[case]
        deed = deeds[name]
        numbers = places(fault, functools.partial(deed.act, shutil.copytree(two, trial.folder / f"all-{case}")))
        for at in numbers:
            folder = trial.folder / f"{case}-{at}"
            shutil.copytree(two, folder)
            try:
                _judge(deed, folder, FaultyDisk(at, fault), last=at == numbers[-1])
            except (AssertionError, CheckpointError) as error:
                outcome.lost.append((case, f"{name}, {fault} at call {at} of {numbers[-1] - 1}: {error}"))
            shutil.rmtree(folder)
            if at != numbers[-1]:
                outcome.count += 1
                outcome.tally["of a load" if deed.faults is LOADING else "of a save"] += 1
    return outcome


def _judge(deed: Deed, folder: Path, disk: FaultyDisk, *, last: bool) -> None:
    returned = True
    try:
        deed.act(folder, disk)
    except (Died, OSError, CheckpointError):
        returned = False
    assert disk.reached != last, "the number of calls is not the same each time"
    assert returned or not last, "it failed where nothing was done to it"
    clean(folder, disk=QUICK)
    if deed.act is resume_damaged:
        resume(folder, QUICK)
    found = newest(folder)
    allowed = (deed.after,) if returned else (deed.before, deed.after)
    assert found in allowed, f"{found} is the newest; {allowed} was expected"
    write(folder, moment(4), disk=QUICK)
    assert newest(folder) == (4, 0), "the next save was not found"
    left = [path.name for path in folder.glob(".*") if not path.name.startswith(".corrupt-step_00000003")]
    assert not left, f"{left} was left behind"


def save_in_place(folder: Path, disk: Disk) -> None:
    checkpoint._write_files(folder / "step_00000003", prepare(moment(3)), disk, SaveCoordinator())


CALLS = Scenario(
    "every call",
    "A crash, ENOSPC, EIO (once, or from then on), a short and a lying write, a short read, at every filesystem call "
    "of saving and of loading, until there is none left: the newest good checkpoint is loaded and the next save works.",
    "faults", 1000, len(PAIRS), len(PAIRS), 6, fail_at_every_call,
)  # fmt: skip
IN_PLACE = Scenario(
    "written in place",
    "A checkpoint is written under its own name instead of beside it.",
    "faults", 1, 1, 1, 1,
    functools.partial(fail_at_every_call, deeds={"in place": Deed(save_in_place, (2, 0), (3, 0), ("exit",))}),
    symptom="damaged in sight",
)  # fmt: skip
