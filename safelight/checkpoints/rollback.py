"""Back to a checkpoint: which one is fit for it, and what becomes of those that came after."""

from __future__ import annotations

from pathlib import Path

from safelight.checkpoints.folder import discard, place, steps
from safelight.checkpoints.reader import load
from safelight.checkpoints.snapshot import Loaded
from safelight.errors import CheckpointError


def find_good(folder: Path, newest: int | None) -> Loaded | None:
    """The newest checkpoint up to this step that was found good when it was saved, and that verifies."""
    for step in reversed(steps(folder)):
        if newest is None or step > newest:
            continue
        try:
            loaded = load(place(folder, step))
        except CheckpointError:
            continue
        if loaded.state.get("good_step") == step:
            return loaded
    return None


def give_up_future(folder: Path, step: int) -> None:
    """Removes what was saved after a step: a resume would take it up, and it is not what comes to be."""
    discard([place(folder, later) for later in steps(folder) if later > step])
