"""Signals and shared folders, on real processes."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launch import Launch
from tiny import TINY, Quiet, fingerprints, tiny

from safelight import start
from safelight.checkpoints.folder import steps
from safelight.cli import main
from safelight.errors import CheckpointError
from safelight.files import Disk
from safelight.processes.interrupts import Interrupts, signals_as_interrupts
from safelight.run import RunFolder
from safelight.terminal import Terminal
from safelight.training.step_reporter import StepSummary

HELD = 3  # the step after which a run is held
pytestmark = pytest.mark.usefixtures("every_save")


@pytest.fixture(scope="module", autouse=True)
def warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    """All that is imported late is imported before the fork, once and not by every process."""
    importlib.import_module("safelight.cli.train")
    start.train(tiny(train__steps=1), run=tmp_path_factory.mktemp("warm") / "run", terminal=Quiet())


class Held:
    """`safelight train` in a process of its own that stands still after a step until it is let go."""

    def __init__(self, run: Path) -> None:
        here, told = os.pipe()
        let, go = os.pipe()

        def act(rank: int) -> int:
            os.close(here)
            os.close(go)
            hold(told, let)
            sets = [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]
            return main(["train", "--run", str(run), *sets, "--set", "checkpoint.every=100"])

        self._launch, self._told, self._go = Launch(1, act, run.with_name("said")), here, go
        os.close(told)
        os.close(let)
        self.pid = self._launch.pids[0]
        self.hear("held")

    def hear(self, word: str) -> None:
        """Waits for it; a process that ended says nothing."""
        assert os.read(self._told, len(word)).decode() == word, self._launch.said(0)

    def end(self) -> tuple[int, str]:
        """Its exit code and what it said, once it is let go."""
        os.close(self._go)
        os.close(self._told)
        [code] = self._launch.codes()
        return code, self._launch.said(0)


def hold(told: int, let: int) -> None:
    """Only in the fork: says that it is held, and of every signal that it was taken notice of."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests that run under `nohup` ignore it, and so would this process
    show, handle = Terminal.show, Interrupts._handle

    def showing(self: Terminal, progress: StepSummary) -> None:
        show(self, progress)
        if progress.step == HELD:
            os.write(told, b"held")
            os.read(let, 1)

    def handling(self: Interrupts, *given: object) -> None:
        handle(self, *given)  # type: ignore[arg-type]
        os.write(told, b"signal")

    Terminal.show, Interrupts._handle = showing, handling  # type: ignore[method-assign]


SIGNALS = [
    (signal.SIGINT, 130),
    *((each, 75) for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU, signal.SIGUSR1)),
]


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_first_signal_saves_and_says_how_to_go_on(number: signal.Signals, code: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = Held(run)
    os.kill(process.pid, number)
    process.hear("signal")
    if number not in (signal.SIGINT, signal.SIGTERM):  # these come more than once, and do not hurry
        os.kill(process.pid, number)
        process.hear("signal")
    ended, said = process.end()
    assert ended == code, said
    assert f"safelight resume {run}" in said
    assert "Traceback" not in said
    assert RunFolder(run).status()["status"] == "interrupted"
    assert steps(run / "checkpoints") == [RunFolder(run).status()["step"]] == [HELD]


def test_second_signal_stops_now_and_leaves_a_run_that_resumes(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = Held(run)
    os.kill(process.pid, signal.SIGINT)
    process.hear("signal")
    os.kill(process.pid, signal.SIGTERM)
    ended, said = process.end()
    assert ended == 128 + signal.SIGTERM, said
    assert steps(run / "checkpoints") == []  # the answer to the first had not begun
    start.resume(run, terminal=Quiet())  # the lock of a dead process is nobody's
    assert RunFolder(run).status()["status"] == "finished"


def test_second_process_refuses_while_the_first_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    process = Held(run)
    assert main(["resume", str(run)]) == 2
    assert str(process.pid) in capsys.readouterr().err
    ended, said = process.end()
    assert ended == 0, said
    assert RunFolder(run).status()["status"] == "finished"


def full(self: Disk, descriptor: int, content: memoryview) -> int:
    raise OSError(28, os.strerror(28))


def test_full_disk_costs_checkpoints_but_not_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, write = tmp_path / "run", Disk.write

    def fill(step: int) -> None:
        if step in (5, 11):
            monkeypatch.setattr(Disk, "write", full if step == 5 else write)

    terminal = Quiet(on_step=fill)
    start.train(tiny(checkpoint__every=2), run=good, terminal=terminal)
    assert any("No space left" in text for text in terminal.said)
    assert max(steps(good / "checkpoints")) == 12
    whole = tmp_path / "whole"
    start.train(tiny(checkpoint__every=2), run=whole, terminal=Quiet())
    assert fingerprints(good) == fingerprints(whole)


def test_full_disk_at_the_end_is_an_error_that_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, write = tmp_path / "run", Disk.write
    terminal = Quiet(on_step=lambda step: monkeypatch.setattr(Disk, "write", full) if step == 9 else None)
    with pytest.raises(CheckpointError, match="safelight resume"):
        start.train(tiny(), run=run, terminal=terminal)
    assert max(steps(run / "checkpoints")) in (4, 8)  # that of step 8 may still have been on its way
    monkeypatch.setattr(Disk, "write", write)
    start.resume(run, terminal=Quiet())
    start.train(tiny(), run=tmp_path / "whole", terminal=Quiet())
    assert fingerprints(run) == fingerprints(tmp_path / "whole")


def test_nohup_stays() -> None:
    """And what was there comes back."""
    before = {number: signal.getsignal(number) for number, _ in SIGNALS}
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interrupts.os_signal == 0
            os.kill(os.getpid(), signal.SIGUSR1)
            assert interrupts.os_signal == signal.SIGUSR1
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before[signal.SIGHUP])
    assert {number: signal.getsignal(number) for number, _ in SIGNALS} == before


BEGUN = """
import os, signal, sys, tempfile
from safelight import cli

number = int(sys.argv[1])  # a shell in the background ignores SIGINT, nohup SIGHUP, and so would this process
signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

def begin(given):
    with tempfile.TemporaryDirectory(dir="."):
        os.kill(os.getpid(), number)
        signal.pause()

cli._choose = begin
sys.exit(cli.main(["export"]))
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGXCPU", "SIGUSR1", "SIGINT"])
def test_a_command_that_is_stopped_takes_away_what_it_began(tmp_path: Path, name: str) -> None:
    number = getattr(signal, name)
    done = subprocess.run(
        [sys.executable, "-c", BEGUN, str(int(number))], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (128 + number, "Interrupted.\n")
    assert not list(tmp_path.iterdir())


def test_a_signal_that_is_ignored_or_handled_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals_as_interrupts():
            os.kill(os.getpid(), signal.SIGHUP)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGUSR1)
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "the second one ends the process"
    finally:
        signal.signal(signal.SIGHUP, before)
