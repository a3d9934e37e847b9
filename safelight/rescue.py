"""A run whose folder was moved, deleted or unmounted while it trained: its state is saved where a resume finds it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from safelight.checkpoints.folder import steps
from safelight.checkpoints.writer import write
from safelight.errors import RunFolderLost, SafelightError, UsageError
from safelight.opened import write_config
from safelight.run import RunFolder, create_run, free_name
from safelight.training.build import Setup


def rescue(lost: RunFolderLost, setup: Setup) -> RunFolderLost:
    """Saves the state of a run whose folder went away: where the folder went, or in a new one that a resume can open.
    The error to end with, in words."""
    step, words = setup.state.counters.step, str(lost)
    if setup.is_sharded:
        lost.args = (f"{words} Weights are divided among processes, so the last checkpoint has to be enough.",)
        return lost
    try:
        folder = RunFolder(lost.moved_to) if lost.moved_to else _new_home(lost.folder)
        if lost.moved_to is None:
            write_config(folder, setup)
        if step not in steps(folder.checkpoints):
            write(folder.checkpoints, setup.state.snapshot(), disk=folder.disk)
        folder.update_status(status="interrupted", step=step, error=words)
    except (OSError, SafelightError) as error:
        lost.args = (f"{words} The state after step {step} could not be saved elsewhere either: {error}",)
        return lost
    where = "It is there now" if lost.moved_to else "What was in it is not lost if it can be put back"
    lost.args = (
        f"{words} {where}. The state after step {step} was saved in {folder.path}. Continue with: safelight resume "
        f"{folder.path}",
    )
    return lost


def _new_home(path: Path) -> RunFolder:
    """Where the folder was, or beside it, or in the working folder: wherever one can be made."""
    for parent in (path.parent, Path()):
        place = (
            path if parent == path.parent and not os.path.lexists(path) else free_name(parent, f"{path.name}-rescued")
        )
        with contextlib.suppress(UsageError):
            return create_run(place)
    raise UsageError("no folder can be made.")
