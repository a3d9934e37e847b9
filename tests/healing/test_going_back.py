"""A mended run that is killed anywhere ends with the bytes it would have had, and its journal goes with it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launch import Launch
from tiny import Crash, Quiet, fingerprints, journal_of, tiny

from gauntlet import injections
from safelight import start
from safelight.checkpoints.folder import steps
from safelight.cli import main
from safelight.errors import OutOfMemory, UsageError
from safelight.healing.journal import Journal
from safelight.record.reading import read_events, read_signal
from safelight.training.loop import Trainer

pytestmark = pytest.mark.usefixtures("no_report")

SETTINGS: dict[str, Any] = {
    "heal__enabled": True,
    "optimizer__lr": 1e-2,
    "train__steps": 36,
    "checkpoint__every": 6,
    "model__dropout": 0.1,
    "train__preflight": "off",
}
ILL: dict[str, tuple[Callable[[pytest.MonkeyPatch], object], dict[str, Any], str]] = {
    "NaN images": (lambda m: injections.spoil_images(m, range(0, 1700, 60)), {"heal__budget": 20}, "quarantine"),
    "divergence": (lambda m: injections.raise_rate(m, 1e4), {"train__steps": 48}, "lower-rate"),
    "fp16 overflows": (
        lambda m: injections.overflow(m, range(8, 99)),
        {"train__precision": "fp16", "model__widths": "8", "model__norm_groups": 4},  # slow on a CPU
        "change-precision",
    ),
    "memory": (lambda m: injections.limit_memory(m, 4, 9), {}, "halve-batch"),
    "evaluation mode": (lambda m: injections.leave_train_mode(m, lambda step: step == 9), {}, "restore-mode"),
}


@pytest.fixture(autouse=True)
def short_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safelight.healing.rates.UPDATES_PER_RATE", 3)


def crash() -> None:
    raise Crash


class Looks:
    """Counts how often a run is looked at: more often than it has steps, where it went back."""

    def __init__(self, at: int = 0, act: Callable[[], object] = crash) -> None:
        self.count, self._at, self._act = 0, at, act

    def __call__(self, _: int) -> None:
        self.count += 1
        if self.count == self._at:
            self._act()


def train(folder: Path, at_look: tuple[int, Callable[[], object]] | None = None, **settings: Any) -> int:
    """Returns how often the run was looked at."""
    looks = Looks() if at_look is None else Looks(*at_look)
    try:
        start.train(tiny(**SETTINGS | settings), run=folder, terminal=Quiet(on_step=looks))
    except Crash:
        assert at_look is not None
    return looks.count


class Trained:
    """Ill runs that several tests look at, each trained once; the fault must be there when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._looks = folder, dict[str, int]()

    def whole(self, name: str) -> tuple[Path, int]:
        """Read it only; and how often it was looked at."""
        path = self._folder / f"{name}, whole"
        if name not in self._looks:
            self._looks[name] = train(path, **ILL[name][1])
        return path, self._looks[name]

    def broken(self, name: str, share: float, target: Path) -> Path:
        """A copy of what a crash after this share of the looks left behind."""
        path = self._folder / f"{name}, broken at {share}"
        if not path.exists():
            train(path, at_look=(int(self.whole(name)[1] * share), crash), **ILL[name][1])
        return shutil.copytree(path, target)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("ill"))


@pytest.mark.parametrize("name", ILL)
def test_killed_anywhere_it_ends_with_the_same_bytes(
    name: str, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault, settings, kind = ILL[name]
    fault(monkeypatch)
    whole, _ = trained.whole(name)
    acts = journal_of(whole)
    assert kind in {act["kind"] for act in acts}
    broken, looks = tmp_path / "broken", trained.whole(name)[1]
    train(broken, at_look=(int(looks * 0.3), crash), **settings)
    for share in (0.35, 0.45):  # of the looks, since the resume: early, in the middle and late
        with pytest.raises(Crash):
            start.resume(broken, terminal=Quiet(on_step=Looks(int(looks * share))))
    start.resume(broken, terminal=Quiet())
    assert fingerprints(broken) == fingerprints(whole)
    assert [(act["kind"], act["step"], act["since"]) for act in journal_of(broken)] == [
        (act["kind"], act["step"], act["since"]) for act in acts
    ]
    healed = [facts["number"] for _, _, facts in read_events(broken / "record.sqlite", "healed")]
    assert sorted(healed) == [act["number"] for act in acts], "each act is told once"
    assert [step for step, _ in read_signal(broken / "record.sqlite", "loss/mean")] == list(
        range(settings.get("train__steps", 36))
    )


@pytest.fixture
def diverged(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A run that went back and was then killed, and the same one that was not."""
    injections.raise_rate(monkeypatch, 1e4)
    broken = trained.broken("divergence", 0.9, tmp_path / "broken")
    assert journal_of(broken)
    return broken, trained.whole("divergence")[0]


def test_a_forgotten_journal_is_noticed(diverged: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: a resume without the journal trains with the old learning rate and ends elsewhere."""
    broken, whole = diverged
    monkeypatch.setattr("safelight.training.state.read_journal", lambda _: Journal())
    start.resume(broken, settings={"heal.enabled": False}, terminal=Quiet())
    assert fingerprints(broken) != fingerprints(whole)


def test_what_was_done_goes_on_where_healing_is_turned_off(diverged: tuple[Path, Path]) -> None:
    broken, whole = diverged
    start.resume(broken, settings={"heal.enabled": False}, terminal=Quiet())
    assert fingerprints(broken) == fingerprints(whole)


def test_nothing_of_the_steps_that_were_given_up_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    injections.raise_rate(monkeypatch, 1e3)
    seen: list[tuple[int, list[int], list[int]]] = []
    run = tmp_path / "run"
    back = Trainer._go_back

    def watched(self: Trainer, order: Any) -> None:
        back(self, order)
        step = self.state.counters.step
        seen.append((step, steps(run / "checkpoints"), steps(run / "ema")))

    monkeypatch.setattr(Trainer, "_go_back", watched)
    train(run, train__steps=48, ema__snapshots=24, checkpoint__every=4)
    assert seen
    for step, checkpoints, snapshots in seen:
        assert max(checkpoints) == step
        assert max(snapshots, default=0) <= step
    for signal_name in ("loss/mean", "optimizer/lr", "update/refused"):
        assert [step for step, _ in read_signal(run / "record.sqlite", signal_name)] == list(range(48))


def test_an_act_can_be_undone(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        injections.limit_memory(patch, 4, 9)
        whole, looks = trained.whole("memory")
        undone = tmp_path / "undone"
        train(undone, at_look=(looks - 5, crash))
    first = max(steps(undone / "checkpoints"))
    terminal = Quiet()
    start.resume(undone, undo=1, terminal=terminal)
    assert any(f"Undone from step {first}" in line for line in terminal.said)
    [act] = journal_of(undone)
    assert act["undone"] == first
    assert fingerprints(undone) != fingerprints(whole)
    with pytest.raises(UsageError, match="undone already"):
        start.resume(undone, undo=1, terminal=Quiet())


def test_undoing_survives_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    injections.limit_memory(monkeypatch, 4, 9)
    run = tmp_path / "run"
    train(run, at_look=(20, crash))
    with pytest.raises(OutOfMemory):  # at the first step, as it would have been without the act
        start.resume(run, undo=1, settings={"heal.enabled": False}, terminal=Quiet())
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


def test_kill_9_after_going_back(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    injections.raise_rate(monkeypatch, 1e4)
    whole, looks = trained.whole("divergence")
    run = tmp_path / "killed"

    def act(_: int) -> None:
        train(run, at_look=(looks - 20, lambda: os.kill(os.getpid(), signal.SIGKILL)), **ILL["divergence"][1])

    assert Launch(1, act, tmp_path / "said").codes() == [-signal.SIGKILL]
    assert journal_of(run)
    start.resume(run, terminal=Quiet())
    assert fingerprints(run) == fingerprints(whole)
