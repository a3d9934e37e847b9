"""The run folder: where each thing lives in it, and the small status file that says how the run is."""

from __future__ import annotations

import contextlib
import difflib
import json
import math
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from safelight.errors import UsageError
from safelight.files import (
    TEMPORARY,
    Disk,
    RunLock,
    is_folder,
    list_names,
    make_directories,
    read_json,
    try_to_remove,
    write_atomically,
)

PICTURE = re.compile(r"step_(\d{8,18})\.png", re.ASCII)
HEARTBEAT_SECONDS = 2.0  # at most, between two signs of life in run.json
INNER = ("checkpoints", "ema", "samples", "tensorboard", "wandb")  # folders that a training writes into


class _Inside:
    """The path of a name inside a run folder."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, run: RunFolder, _: object = None) -> Path:
        return run.path / self.name


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths of one run; relocatable, since nothing inside knows where it lies."""

    path: Path
    lock: RunLock | None = field(default=None, compare=False)
    """The lock of a process that writes to it."""

    config = _Inside("config.yaml")
    status_file = _Inside("run.json")
    checkpoints = _Inside("checkpoints")
    snapshots = _Inside("ema")
    samples = _Inside("samples")
    record = _Inside("record.sqlite")
    data = _Inside("data.json")
    report_page = _Inside("report.html")
    architecture_file = _Inside("model.json")

    @property
    def disk(self) -> Disk:
        """For everything inside: no link below the folder is followed."""
        return Disk(self.path)

    def check(self) -> None:
        """Raises where the folder, or the lock on it, is no longer that of this process."""
        if self.lock is not None:
            self.lock.check()

    def architecture(self) -> dict[str, Any] | None:
        """What the U-Net was built from, or None for a model of the user's own."""
        found = read_json(self.architecture_file, self.disk)
        return found if isinstance(found, dict) else None

    def picture(self, step: int, kind: str = "step") -> Path:
        return picture_path(self.samples, step, kind)

    def pictures(self) -> list[tuple[int, Path]]:
        return pictures_in(self.samples)

    def status(self) -> dict[str, Any]:
        """What run.json says. It may come from anywhere: a fact of another kind than its own counts as missing."""
        return well_formed(read_json(self.status_file, self.disk))

    def update_status(self, **facts: Any) -> None:
        """Merges facts into run.json. A full disk costs the heartbeat, never the run."""
        content = json.dumps(self.status() | facts | {"heartbeat": time.time(), "pid": os.getpid()}, indent=1)
        with contextlib.suppress(OSError):
            # Not flushed to the device: it is written every few seconds, and the checkpoints have what matters.
            write_atomically(self.status_file, content.encode(), self.disk, sync=False)


def picture_path(folder: Path, step: int, kind: str = "step") -> Path:
    return folder / f"{kind}_{step:08d}.png"


def pictures_in(folder: Path) -> list[tuple[int, Path]]:
    """(step, grid of its samples) of our own, in order; a copy that somebody made beside them is none."""
    named = [(PICTURE.fullmatch(path.name), path) for path in folder.glob("step_*.png")]
    return sorted((int(found[1]), path) for found, path in named if found is not None)


def prepare_to_write(folder: RunFolder) -> None:
    """By the holder of the lock: refuses folders that lead elsewhere, and removes what a kill left unfinished."""
    try:
        for name in INNER:
            is_folder(folder.path / name, folder.disk)
    except OSError as error:
        raise UsageError(f"{error.strerror or error}.") from error
    for place in (folder.path, folder.samples):
        if is_folder(place, folder.disk):
            for name in list_names(place, folder.disk):
                if name.startswith(TEMPORARY):
                    try_to_remove(place / name, folder.disk)


@contextlib.contextmanager
def locked(folder: RunFolder) -> Iterator[RunFolder]:
    """The same folder, locked: this process alone writes to it."""
    with RunLock(folder.path) as lock:
        prepare_to_write(folder)
        yield replace(folder, lock=lock)


def well_formed(status: Any) -> dict[str, Any]:
    """The facts of a status that have the kind that whoever reads them expects."""
    if not isinstance(status, dict):
        return {}
    return {name: fact for name, fact in status.items() if name not in FACTS or FACTS[name](fact)}


def _is_whole(fact: Any) -> bool:
    return type(fact) is int and abs(fact) < 2**63


def _is_number(fact: Any) -> bool:
    return _is_whole(fact) or (isinstance(fact, float) and math.isfinite(fact))


def _is_word(fact: Any) -> bool:
    return isinstance(fact, str)


def _is_data(fact: Any) -> bool:
    names = fact.get("class_names", []) if isinstance(fact, dict) else None
    return isinstance(names, list) and all(map(_is_word, names)) and _is_word(fact.get("fingerprint", ""))


def _is_evaluation(fact: Any) -> bool:
    return isinstance(fact, dict) and (
        _is_word(fact.get("label"))
        and _is_whole(fact.get("step"))
        and all(_is_number(fact.get(name)) for name in ("distance", "error"))
    )


def _are_failures(fact: Any) -> bool:
    return isinstance(fact, list) and all(
        isinstance(each, dict) and _is_whole(each.get("step")) and _is_word(each.get("words")) for each in fact
    )


FACTS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("status", "error", "last_finding", "kind"), _is_word),
    **dict.fromkeys(("step", "steps", "pid"), _is_whole),
    **dict.fromkeys(("seconds", "created", "heartbeat"), _is_number),
    "best_step": lambda fact: fact is None or _is_whole(fact),
    "asked_channels": lambda fact: fact in (None, 1, 3) and not isinstance(fact, bool | float),
    "versions": lambda fact: isinstance(fact, dict),
    "journal": lambda fact: isinstance(fact, list),
    "data": _is_data,
    "evaluation": _is_evaluation,
    "failures": _are_failures,
}


class ReadOnlyRunFolder(RunFolder):
    """The folder of every process but the first: knows where the run is, and writes nothing."""

    def update_status(self, **facts: Any) -> None: ...


def open_run(path: Path) -> RunFolder:
    """An existing run; an error for any other path."""
    folder = RunFolder(path)
    if not os.path.isdir(path):  # unlike Path.is_dir, it does not raise where the name is too long
        raise UsageError(f"{path} is no folder. {_near_run(path) or 'Name a run folder, such as runs/latest.'}")
    if not folder.config.is_file():
        raise UsageError(
            f"{path} has no config.yaml, so no training ever started there. Start one: safelight train --run {path}"
        )
    return folder


def _near_run(path: Path) -> str | None:
    """A run of a similar name, beside the path or in `runs`."""
    for parent in (path.parent, Path("runs")):
        try:
            names = [each.name for each in parent.iterdir() if is_run(each)]
        except OSError:
            continue
        if close := difflib.get_close_matches(path.name, names, 1, 0.6):
            return f"Did you mean {parent / close[0]}?"
    return None


def open_recorded(path: Path) -> RunFolder:
    """A folder with a record in it: of a run, or of a watched loop."""
    folder = RunFolder(path)
    return folder if folder.record.is_file() else open_run(path)


def is_run(path: Path) -> bool:
    """Whether a path is a run folder, or was meant to be one: it lies in `runs`, or has a record or a status."""
    folder = RunFolder(path)
    return folder.record.is_file() or folder.config.is_file() or "runs" in path.parts[-2:-1]


def refuse_used(path: Path) -> None:
    """Refuses a folder that already holds a run or anything else, before anything is read or built."""
    if os.path.lexists(RunFolder(path).config):
        raise UsageError(
            f"{path} already holds a run. Continue it with `safelight resume {path}`, choose another --run, or add "
            "--force to move it aside."
        )
    if found := _contents(path):
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise UsageError(
            f"{path} is not empty and not a run: it holds {', '.join(found[:3])}{more}. Nothing was touched. Choose "
            "another --run, or add --force to move what is there aside."
        )


def _contents(path: Path) -> list[str]:
    """What lies in a folder, without what a training leaves that was killed before it began."""
    try:
        names = sorted(os.listdir(path))
    except OSError:
        return []  # missing, or no folder: the error comes where it is made
    begun = RunFolder(path).status().get("step") is not None
    unused = {"lock"} | (set() if begun else {"run.json", "model.json", "data.json"})
    return [
        name
        for name in names
        if name not in unused
        and not name.startswith(TEMPORARY)
        and not (name in INNER and os.path.isdir(path / name) and not os.listdir(path / name))
    ]


def move_used_aside(path: Path) -> Path | None:
    """Makes way for a new run: a folder that is not empty gets another name, beside it. Nothing is deleted."""
    if not (os.path.lexists(RunFolder(path).config) or _contents(path)):
        return None
    real = path.resolve()  # a link to a folder stays, and leads to the new one
    with RunLock(real):  # not while another process trains there
        target = free_name(real.parent, f"{real.name}-before")
        try:
            os.rename(real, target)
        except OSError as error:
            raise UsageError(f"{path} cannot be moved aside: {error.strerror}. Choose another --run.") from error
    make_directories(real)
    return target


def create_run(path: Path) -> RunFolder:
    """A new folder; one that already holds something is never written over."""
    refuse_used(path)
    folder = RunFolder(path)
    try:
        make_directories(folder.path)
        for inner in (folder.samples, folder.checkpoints):
            make_directories(inner, folder.disk)
    except OSError as error:
        raise UsageError(f"The run folder {path} cannot be made: {error.strerror}. Choose another --run.") from error
    return folder


def free_name(parent: Path, name: str) -> Path:
    """runs/digits-1, runs/digits-2, …"""
    taken = {p.name for p in parent.iterdir()} if parent.is_dir() else set()
    return next(parent / f"{name}-{i}" for i in range(1, len(taken) + 2) if f"{name}-{i}" not in taken)


def point_latest(folder: RunFolder) -> None:
    """Points the link `latest`, next to the run, to it."""
    link, temporary = folder.path.parent / "latest", folder.path.parent / f".latest-{secrets.token_hex(8)}"
    if link.exists() and not link.is_symlink():
        return  # a folder of the user's
    try:
        temporary.symlink_to(folder.path.name)
        os.replace(temporary, link)
    except OSError:
        temporary.unlink(missing_ok=True)  # file systems without links do without
