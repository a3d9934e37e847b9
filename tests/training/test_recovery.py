"""An act that is undone is undone on disk at once, and the search for a loss scale begins anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny import journal_of, parts_of

from safelight.errors import UsageError
from safelight.run import create_run
from safelight.training.recovery import undo
from safelight.training.scaling import FIRST_SCALE


@pytest.mark.parametrize(("kind", "scale"), [("change-precision", FIRST_SCALE), ("lower-rate", 4.0)])
def test_an_undone_act_is_on_disk(tmp_path: Path, kind: str, scale: float) -> None:
    setup, folder = parts_of(train__precision="fp16"), create_run(tmp_path / "run")
    setup.state.journal.write(kind, step=0, since=0, reason="a test", facts={})  # type: ignore[arg-type]
    setup.state.counters.step = 2
    setup.state.loss_scale.value.fill_(4.0)
    assert undo(setup, folder, 1).undone == 2
    assert [act["undone"] for act in journal_of(folder.path)] == [2]
    assert float(setup.state.loss_scale.value) == scale


def test_an_act_that_there_is_not_writes_nothing(tmp_path: Path) -> None:
    setup, folder = parts_of(), create_run(tmp_path / "run")
    with pytest.raises(UsageError, match="no act 1"):
        undo(setup, folder, 1)
    assert not list(folder.path.glob("checkpoints/step_*"))
