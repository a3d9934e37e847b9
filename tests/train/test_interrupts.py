"""Signals and shared folders, on real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny import TINY, Quiet, fingerprints, tiny

from safelight import session
from safelight.errors import CheckpointError
from safelight.run import RunFolder
from safelight.train.checkpoint import steps


def start(run: Path, *words: str) -> subprocess.Popen[str]:
    settings = TINY | {"train.steps": 4000, "checkpoint.every": 1000, "ema.snapshots": 0}
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "safelight", "train", "--run", str(run), *sets, *words]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def wait_until_training(process: subprocess.Popen[str], run: Path) -> None:
    deadline = time.monotonic() + 120
    while RunFolder(run).status().get("status") != "training" or RunFolder(run).status().get("step", 0) < 1:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "training did not begin"
        time.sleep(0.1)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_first_signal_saves_and_says_how_to_go_on(number: signal.Signals, code: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(run)
    wait_until_training(process, run)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == code, stderr
    assert f"safelight resume {run}" in stderr
    assert "Traceback" not in stderr
    assert RunFolder(run).status()["status"] == "interrupted"
    assert max(steps(run / "checkpoints")) == RunFolder(run).status()["step"]


def test_second_signal_stops_now_and_leaves_a_run_that_resumes(tmp_path: Path) -> None:
    """Sent as one burst, so that the second comes while the first is being answered."""
    run = tmp_path / "run"
    process = start(run)
    wait_until_training(process, run)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode in (128 + signal.SIGTERM, 130)  # the first may have been quicker than the second
    with RunLockFree(run):
        pass


class RunLockFree:
    """The lock of a dead process is nobody's."""

    def __init__(self, run: Path) -> None:
        self._run = run

    def __enter__(self) -> None:
        from safelight.files import RunLock

        with RunLock(self._run):
            pass

    def __exit__(self, *_: object) -> None: ...


def test_second_process_refuses_while_the_first_trains(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(run)
    wait_until_training(process, run)
    second = subprocess.run([sys.executable, "-m", "safelight", "resume", str(run)], capture_output=True, text=True)
    process.kill()
    process.communicate()
    assert second.returncode == 2, second.stderr
    assert str(process.pid) in second.stderr


def test_full_disk_costs_checkpoints_but_not_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safelight.files import Disk

    def full(self: Disk, descriptor: int, content: memoryview) -> int:
        raise OSError(28, os.strerror(28))

    good = tmp_path / "run"

    def fill(step: int) -> None:
        if step == 5:
            monkeypatch.setattr(Disk, "write", full)
        if step == 11:
            monkeypatch.undo()

    terminal = Quiet(on_step=fill)
    session.train(tiny(checkpoint__every=2), run=good, terminal=terminal)
    assert any("No space left" in text for text in terminal.said)
    assert max(steps(good / "checkpoints")) == 12
    whole = tmp_path / "whole"
    session.train(tiny(checkpoint__every=2), run=whole, terminal=Quiet())
    assert fingerprints(good) == fingerprints(whole)


def test_full_disk_at_the_end_is_an_error_that_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safelight.files import Disk

    def full(self: Disk, descriptor: int, content: memoryview) -> int:
        raise OSError(28, os.strerror(28))

    run = tmp_path / "run"
    terminal = Quiet(on_step=lambda step: monkeypatch.setattr(Disk, "write", full) if step == 9 else None)
    with pytest.raises(CheckpointError, match="safelight resume"):
        session.train(tiny(), run=run, terminal=terminal)
    assert max(steps(run / "checkpoints")) in (4, 8)  # that of step 8 may still have been on its way
    monkeypatch.undo()
    session.resume(run, terminal=Quiet())
    session.train(tiny(), run=tmp_path / "whole", terminal=Quiet())
    assert fingerprints(run) == fingerprints(tmp_path / "whole")
