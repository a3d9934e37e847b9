"""The folder of checkpoints: which ones are there, which are kept, and how the others leave it."""

from __future__ import annotations

import contextlib
import re
import secrets
from pathlib import Path

from safelight.checkpoints import manifest
from safelight.files import DISK, TEMPORARY, Disk, remove_tree, try_to_remove

KEEP_ALL = 1 << 30  # as `last`: the past is kept whole, and nothing is deleted to make room either
_TRASH, _CORRUPT, _REPLACED = ".trash-", ".corrupt-", ".replaced-"
_STEP = re.compile(r"step_([0-9]+)", re.ASCII)
_REPLACED_STEP = re.compile(r"\.replaced-step_([0-9]+)-[0-9a-f]+", re.ASCII)


def place(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step belongs."""
    return folder / f"step_{step:08d}"


def steps(folder: Path) -> list[int]:
    """The steps that have a checkpoint, oldest first."""
    return sorted(_by_step(folder))


def _by_step(folder: Path, name: re.Pattern[str] = _STEP) -> dict[int, Path]:
    return {int(match[1]): path for path in _inside(folder) if (match := name.fullmatch(path.name))}


def _inside(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def candidates(folder: Path) -> list[Path]:
    """Newest first; one that is being replaced counts as long as its successor is not in place."""
    found = _by_step(folder, _REPLACED_STEP) | _by_step(folder)
    return [found[step] for step in sorted(found, reverse=True)]


def corrupt(folder: Path) -> list[Path]:
    """What was set aside."""
    return [path for path in _inside(folder) if path.name.startswith(_CORRUPT)]


def set_aside(path: Path, disk: Disk = DISK) -> Path | None:
    """Out of the way of loading but not deleted; None where even that is impossible (a read-only disk)."""
    target = _renamed(path, _CORRUPT)
    try:
        disk.rename(path, target)
        disk.sync_directory(path.parent)
    except OSError:
        return None
    return target


def displace(path: Path, disk: Disk = DISK) -> Path | None:
    """Make way for a new checkpoint of the same step; the old one is a candidate until that is there."""
    if not path.exists() and not path.is_symlink():
        return None
    target = _renamed(path, _REPLACED)
    disk.rename(path, target)
    return target


def _renamed(path: Path, prefix: str) -> Path:
    return path.with_name(f"{prefix}{path.name.lstrip('.')}-{secrets.token_hex(4)}")


def retain(
    folder: Path,
    *,
    last: int,
    every: int,
    best: int | None,
    safe: int | None = None,
    now: int | None = None,
    read_all: bool = False,
    disk: Disk = DISK,
) -> list[int]:
    """Delete all but the newest `last`, the multiples of `every`, `best`, and `safe`, which a run may go back to; only
    after a verified write.

    Damaged ones do not count and are not deleted; with `read_all` they are found by their last byte too. With `now`,
    checkpoints of later steps belong to a future that was given up when training went back; they go too, or a restart
    would pick them.
    """
    found = sorted(_by_step(folder).items())
    whole = {step: path for step, path in found if manifest.is_whole(path, disk, read_all=read_all)}
    past = [step for step in whole if now is None or step <= now]
    keep = {step for step in past if step in (best, safe) or (every and step % every == 0)}
    keep |= set(past[-max(last, 1) :])
    removed = [step for step in whole if past and step not in keep]
    discard([whole[step] for step in removed], disk)
    return removed


def discard(paths: list[Path], disk: Disk = DISK) -> None:
    """Delete so that a crash half way leaves a whole checkpoint or none, never half a one."""
    trash = [_renamed(path, _TRASH) for path in paths]
    for path, target in zip(paths, trash, strict=True):
        disk.rename(path, target)
    for folder in {target.parent for target in trash}:
        disk.sync_directory(folder)  # or the power could undo the new name and not the deletion under it
    for target in trash:
        remove_tree(target, disk)


def discard_after(folder: Path, step: int, disk: Disk = DISK) -> None:
    """Removes what was saved after a step that a run went back to: a resume would continue from it."""
    discard([place(folder, later) for later in steps(folder) if later > step], disk)


def clean(folder: Path, *, disk: Disk = DISK) -> None:
    """At the start, by the holder of the run lock: remove what is unfinished (also of `write_atomically`)."""
    for path in _inside(folder):
        replaced = _REPLACED_STEP.fullmatch(path.name)
        final = place(folder, int(replaced[1])) if replaced else None
        if final and not final.exists():
            with contextlib.suppress(OSError):  # it is a candidate under either name
                disk.rename(path, final)
        elif final or path.name.startswith((TEMPORARY, _TRASH)):
            try_to_remove(path, disk)
