"""A mended run that is killed anywhere ends with the bytes it would have had, and its journal goes with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_heal import journal_of
from tiny import Crash, Quiet, fingerprints, tiny

from gauntlet import illnesses
from safelight import session
from safelight.cli import main
from safelight.errors import OutOfMemory, UsageError
from safelight.heal.journal import Journal
from safelight.record.store import read_events, read_signal
from safelight.train.checkpoint import steps

SETTINGS: dict[str, Any] = {
    "heal__enabled": True,
    "optimizer__lr": 1e-2,
    "train__steps": 36,
    "checkpoint__every": 6,
    "model__dropout": 0.1,
    "train__preflight": "off",
}
ILL: dict[str, tuple[Callable[[pytest.MonkeyPatch], object], dict[str, Any], str]] = {
    "NaN images": (lambda m: illnesses.spoil_images(m, range(0, 1700, 60)), {"heal__budget": 20}, "quarantine"),
    "divergence": (lambda m: illnesses.raise_rate(m, 1e4), {"train__steps": 48}, "lower-rate"),
    "fp16 overflows": (
        lambda m: illnesses.overflow(m, range(8, 99)),
        {"train__precision": "fp16"},
        "change-precision",
    ),
    "memory": (lambda m: illnesses.limit_memory(m, 4, 9), {}, "halve-batch"),
    "evaluation mode": (lambda m: illnesses.leave_train_mode(m, lambda step: step == 9), {}, "restore-mode"),
}


@pytest.fixture(autouse=True)
def short_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safelight.train.rates.UPDATES", 3)


def train(folder: Path, crash_at_look: int | None = None, **settings: Any) -> int:
    """Returns how often the run was looked at: more often than it has steps, where it went back."""
    looks = 0

    def look(_: int) -> None:
        nonlocal looks
        looks += 1
        if looks == crash_at_look:
            raise Crash

    try:
        session.train(tiny(**SETTINGS | settings), run=folder, terminal=Quiet(on_step=look))
    except Crash:
        assert crash_at_look is not None
    return looks


@pytest.mark.parametrize(("fault", "settings", "kind"), ILL.values(), ids=ILL.keys())
def test_killed_anywhere_it_ends_with_the_same_bytes(
    fault: Callable[[pytest.MonkeyPatch], object],
    settings: dict[str, Any],
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fault(monkeypatch)
    whole = tmp_path / "whole"
    looks = train(whole, **settings)
    acts = journal_of(whole)
    assert kind in {act["kind"] for act in acts}
    for share in (0.3, 0.55, 0.9):
        broken = tmp_path / f"broken at {share}"
        train(broken, crash_at_look=int(looks * share), **settings)
        session.resume(broken, terminal=Quiet())
        assert fingerprints(broken) == fingerprints(whole), share
        assert [(act["kind"], act["step"], act["since"]) for act in journal_of(broken)] == [
            (act["kind"], act["step"], act["since"]) for act in acts
        ]
        healed = [facts["number"] for _, _, facts in read_events(broken / "record.sqlite", "healed")]
        assert sorted(healed) == [act["number"] for act in acts], "each act is told once"
        assert [step for step, _ in read_signal(broken / "record.sqlite", "loss/mean")] == list(
            range(settings.get("train__steps", 36))
        )


def diverged(folder: Path, monkeypatch: pytest.MonkeyPatch, share: float = 0.9) -> Path:
    """A run that went back and was then killed."""
    illnesses.raise_rate(monkeypatch, 1e4)
    looks = train(folder.parent / "whole", train__steps=48)
    train(folder, crash_at_look=int(looks * share), train__steps=48)
    assert journal_of(folder)
    return folder


def test_a_forgotten_journal_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: a resume without the journal trains with the old learning rate and ends elsewhere."""
    broken = diverged(tmp_path / "broken", monkeypatch)
    monkeypatch.setattr("safelight.train.state.read_journal", lambda _: Journal())
    session.resume(broken, settings={"heal.enabled": False}, terminal=Quiet())
    assert fingerprints(broken) != fingerprints(tmp_path / "whole")


def test_what_was_done_goes_on_where_healing_is_turned_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = diverged(tmp_path / "broken", monkeypatch)
    session.resume(broken, settings={"heal.enabled": False}, terminal=Quiet())
    assert fingerprints(broken) == fingerprints(tmp_path / "whole")


def test_nothing_of_the_steps_that_were_given_up_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    illnesses.raise_rate(monkeypatch, 1e4)
    seen: list[tuple[int, list[int], list[int]]] = []
    run = tmp_path / "run"
    back = session.Trainer._go_back

    def watched(self: session.Trainer, order: Any) -> None:
        back(self, order)
        step = self.state.counters.step
        seen.append((step, steps(run / "checkpoints"), steps(run / "ema")))

    monkeypatch.setattr(session.Trainer, "_go_back", watched)
    train(run, train__steps=48, ema__snapshots=24, checkpoint__every=4)
    assert seen
    for step, checkpoints, snapshots in seen:
        assert max(checkpoints) == step
        assert max(snapshots, default=0) <= step
    for signal_name in ("loss/mean", "optimizer/lr", "update/refused"):
        assert [step for step, _ in read_signal(run / "record.sqlite", signal_name)] == list(range(48))


def test_an_act_can_be_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    illnesses.limit_memory(monkeypatch, 4, 9)
    whole, undone = tmp_path / "whole", tmp_path / "undone"
    looks = train(whole)
    train(undone, crash_at_look=looks - 5)
    monkeypatch.undo()
    monkeypatch.setattr("safelight.monitors.pool.HOST_SECONDS", 0.0)
    first = max(steps(undone / "checkpoints"))
    terminal = Quiet()
    session.resume(undone, undo=1, terminal=terminal)
    assert any(f"Undone from step {first}" in line for line in terminal.said)
    [act] = journal_of(undone)
    assert act["undone"] == first
    assert fingerprints(undone) != fingerprints(whole)
    with pytest.raises(UsageError, match="undone already"):
        session.resume(undone, undo=1, terminal=Quiet())


def test_undoing_survives_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    illnesses.limit_memory(monkeypatch, 4, 9)
    run = tmp_path / "run"
    train(run, crash_at_look=20)
    with pytest.raises(OutOfMemory):  # at the first step, as it would have been without the act
        session.resume(run, undo=1, settings={"heal.enabled": False}, terminal=Quiet())
    [act] = journal_of(run)
    assert act["undone"] == 18


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--undo", "7"], "Nothing was done"),
        (["--undo", "one"], "--undo is 'one', but it must be a whole number"),
        (["--heal", "--no-heal"], "exclude each other"),
    ],
)
def test_wrong_words_are_told(words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path / "run", train__steps=4)
    assert main(["resume", str(tmp_path / "run"), *words]) == 2
    assert told in " ".join(capsys.readouterr().err.split())


KILLED = """
import os, signal, sys
sys.path[:0] = {paths!r}
import pytest, torch
from gauntlet import illnesses
from pathlib import Path
from test_heal_resume import SETTINGS
from tiny import Quiet, tiny
from safelight import session

torch.set_num_threads(1)
patch = pytest.MonkeyPatch()
patch.setattr("safelight.train.rates.UPDATES", 3)
patch.setattr("safelight.monitors.pool.HOST_SECONDS", 0.0)
illnesses.raise_rate(patch, 1e4)
looks = 0

def look(_):
    global looks
    looks += 1
    if looks == {look}:
        os.kill(os.getpid(), signal.SIGKILL)

session.train(tiny(**SETTINGS | {{"train__steps": 48}}), run=Path({run!r}), terminal=Quiet(on_step=look))
"""


def test_kill_9_after_going_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    illnesses.raise_rate(monkeypatch, 1e4)
    looks = train(tmp_path / "whole", train__steps=48)
    run, here = tmp_path / "killed", Path(__file__).parent
    script = KILLED.format(
        paths=[str(here), str(here.parent / "train"), str(here.parent.parent)], look=looks - 20, run=str(run)
    )
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert journal_of(run)
    session.resume(run, terminal=Quiet())
    assert fingerprints(run) == fingerprints(tmp_path / "whole")
