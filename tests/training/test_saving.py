"""When checkpoints are due, and when patience ends a run. What is in them, kills and resumes: tests/checkpoints and
tests/test_start.py."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ranks import keep, kept, launch
from tiny import Quiet, fingerprints, tiny
from torch import Tensor

from safelight import start
from safelight.checkpoints.writer import Writer
from safelight.errors import Interrupted
from safelight.pages.data.run_list import entry
from safelight.pages.data.runs import describe
from safelight.processes.group import ProcessGroup
from safelight.record.reading import read_signal
from safelight.training.fixed_set import FixedSet
from safelight.training.saving import checkpoint_interval
from safelight.training.state import State

pytestmark = pytest.mark.usefixtures("no_report")

PLAN = {"train__steps": 16, "checkpoint__every": 2}


@pytest.mark.parametrize(
    ("every", "steps", "expected"),
    [(4, 12, 4), (None, 12, 1), (None, 400, 20), (None, 20_000, 1000), (None, 1_000_000, 1000), (5000, 100, 5000)],
)
def test_checkpoints_come_twenty_times_and_at_least_every_thousand_steps(
    every: int | None, steps: int, expected: int
) -> None:
    assert checkpoint_interval(tiny(checkpoint__every=every, train__steps=steps)) == expected


def test_a_checkpoint_and_the_run_know_their_epoch(trained_run: Path) -> None:
    status = json.loads((trained_run / "run.json").read_text())
    state = json.loads((trained_run / "checkpoints" / "step_00000006" / "state.json").read_text())
    assert state["epoch"] == status["epoch"] == 6 * 8 / status["data"]["trained"]


def train(run: Path, **settings: object) -> list[str]:
    terminal = Quiet()
    start.train(tiny(**settings), run=run, terminal=terminal)
    return terminal.said


def ended_at(run: Path) -> tuple[str, int]:
    status = json.loads((run / "run.json").read_text())
    return status["status"], status["step"]


Worsen = Callable[[int], None]


@pytest.fixture
def worsen(monkeypatch: pytest.MonkeyPatch) -> Worsen:
    """From a step on, the losses of the fixed and the held-out set rise. They change nothing that is trained."""
    true = FixedSet.losses

    def worsen_after(step: int) -> None:
        def losses(self: FixedSet, state: State, group: ProcessGroup) -> tuple[Tensor, Tensor]:
            raw, ema = true(self, state, group)
            factor = 2.0 ** max(0, state.counters.step - step)
            return raw * factor, ema * factor

        monkeypatch.setattr(FixedSet, "losses", losses)

    return worsen_after


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Never ends early. Read it only."""
    run = tmp_path_factory.mktemp("patience") / "whole"
    assert not [words for words in train(run, **PLAN) if "patience" in words]
    assert ended_at(run) == ("finished", 16)
    return run


@pytest.mark.parametrize(
    ("settings", "words"),
    [({}, "the loss on the held-out images was never lower"), ({"data__held_out": 0}, "the loss on the fixed set was")],
)
def test_patience_ends_a_run_that_gets_no_better(
    tmp_path: Path, worsen: Worsen, settings: dict[str, object], words: str
) -> None:
    worsen(4)
    said = train(tmp_path / "run", train__patience=3, **PLAN, **settings)
    assert ended_at(tmp_path / "run") == ("finished", 10)
    assert f"Ended at step 10 of 16: {words}" in said[-1]
    assert "than at step 4, 3 checkpoints ago" in said[-1]
    assert "--set train.patience=none" in said[-1]
    sentence = entry(describe(tmp_path / "run"))["verdict"]["sentence"]
    assert sentence.startswith("Finished at step 10, after 3 checkpoints without a lower loss (train.patience)")


@pytest.mark.parametrize(("worse_after", "patience"), [(16, 1), (12, 3)])
def test_a_run_that_gets_better_is_not_ended(tmp_path: Path, worsen: Worsen, worse_after: int, patience: int) -> None:
    worsen(worse_after)
    said = train(tmp_path / "run", train__patience=patience, **PLAN)
    assert ended_at(tmp_path / "run") == ("finished", 16)
    assert not [words for words in said if "patience" in words]


@pytest.mark.parametrize("patience", ["none", 100])
def test_a_run_that_patience_ended_continues_to_the_same_bytes(
    whole: Path, tmp_path: Path, worsen: Worsen, patience: object
) -> None:
    worsen(2)
    run = tmp_path / "run"
    train(run, train__patience=2, **PLAN)
    assert ended_at(run) == ("finished", 6)
    again = Quiet()
    start.resume(run, terminal=again)
    assert ended_at(run) == ("finished", 6), "nothing has changed: it ends again, where it was"
    assert "train.patience" in again.said[-1]
    start.resume(run, settings={"train.patience": patience}, terminal=Quiet())
    assert ended_at(run) == ("finished", 16)
    assert fingerprints(run) == fingerprints(whole)


def test_a_checkpoint_that_was_not_planned_is_not_counted(tmp_path: Path, worsen: Worsen) -> None:
    """A signal comes at step 3, where the loss is lower than at any planned checkpoint."""
    worsen(3)

    def stop(step: int) -> None:
        if step == 3:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        start.train(tiny(train__patience=2, **PLAN), run=tmp_path / "run", terminal=Quiet(on_step=stop))
    assert ended_at(tmp_path / "run") == ("interrupted", 3)
    start.resume(tmp_path / "run", terminal=Quiet())
    assert ended_at(tmp_path / "run") == ("finished", 6), "as without the signal: the lowest was at step 2"


def test_all_processes_end_at_the_same_checkpoint(tmp_path: Path, worsen: Worsen) -> None:
    """Only the first one judges: for the others, the loss would still be falling."""

    def act(rank: int) -> None:
        worsen(4 if rank == 0 else 16)
        run = start.train(tiny(train__patience=2, **PLAN), run=tmp_path / "run", terminal=Quiet())
        keep(tmp_path, rank, step=run.step)

    launch(2, tmp_path, act)
    assert kept(tmp_path, 2) == [{"step": 8}, {"step": 8}]
    assert ended_at(tmp_path / "run") == ("finished", 8)


@pytest.mark.parametrize(
    ("grace", "took", "saved", "measured"),
    [(30.0, 31.0, 2, False), (30.0, 1.0, 3, False), (None, 31.0, 3, True)],
    ids=["too slow", "in time", "no limit"],
)
def test_after_a_stop_signal_only_what_fits_is_saved(
    grace: float | None, took: float, saved: int, measured: bool, whole: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    run, true, is_saved = tmp_path / "run", Writer._save, threading.Event()

    def save(self: Writer, *given: Any) -> None:
        true(self, *given)
        self.seconds = took
        if self.last_saved == 2:
            is_saved.set()

    def stop(step: int) -> None:
        if step == 3:
            assert is_saved.wait(300), "what it took is known before the signal comes"
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Writer, "_save", save)
    monkeypatch.setattr(Writer, "busy", property(lambda self: bool(self.wait())))
    screen = Quiet(on_step=stop)
    with pytest.raises(Interrupted) as stopped:
        start.train(tiny(train__grace=grace, **PLAN), run=run, terminal=screen)
    assert stopped.value.exit_code == 75
    assert ended_at(run) == ("interrupted", saved)
    assert ("step 2 is saved" in str(stopped.value)) == (saved == 2)
    assert any("A checkpoint took 31 s to save, and 30 s" in words for words in screen.said) == (grace == 30 < took)
    assert (2 in dict(read_signal(run / "record.sqlite", "probe/ema"))) == measured
    start.resume(run, terminal=Quiet())
    assert fingerprints(run) == fingerprints(whole)
