"""`safelight run --check`: the script in its own process, and what becomes of its exit code and output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from safelight.cli import main
from safelight.errors import PreflightError
from safelight.watching.scripts import check
from safelight.watching.scripts.check import check_script, run_child
from safelight.watching.scripts.launch import Options


def write(folder: Path, text: str) -> str:
    (folder / "train.py").write_text(text)
    return str(folder / "train.py")


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("print('from the script')", 3, "nothing could be checked"),
        ("import sys; sys.exit(0)", 3, "nothing could be checked"),
        ("import sys; sys.exit(2)", 2, "exit code 2"),
        ("raise ValueError('why')", 1, "exit code 1"),
        ("import os; os.kill(os.getpid(), 9)", 137, "exit code 137"),
        ("import os; os._exit(0)", 3, "nothing could be checked"),
    ],
)
def test_a_script_that_does_not_train_could_not_be_checked(
    text: str, code: int, words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = write(tmp_path, text)
    assert main(["run", "--check", script]) == code
    told = capfd.readouterr()
    assert words in told.out
    assert ("ValueError: why" in told.err) == ("why" in text)


def test_json_is_all_that_is_on_stdout(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = write(
        tmp_path, "import subprocess, sys\nprint(1, flush=True)\nsubprocess.run([sys.executable, '-c', 'print(2)'])"
    )
    assert main(["run", "--check", "--json", script, "x"]) == 3
    told = capfd.readouterr()
    assert json.loads(told.out)["script"] == f"{script} x"
    assert told.err.split() == ["1", "2"]


def test_other_processes_of_a_launcher_print_no_report(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    assert main(["run", "--check", write(tmp_path, "")]) == 0
    assert main(["run", "--check", write(tmp_path, "raise SystemExit(4)")]) == 4
    assert capfd.readouterr().out == ""


def test_switched_off_is_not_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFELIGHT", "off")
    with pytest.raises(PreflightError, match="SAFELIGHT is off"):
        check_script(Options(), [write(tmp_path, "raise ValueError")], owns_process=False)


def test_what_ends_the_command_ends_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM is handed on, and comes back as the script's exit code."""
    script = "import sys, time; print('here', flush=True); time.sleep(60)"
    read, end = os.pipe()
    popen = subprocess.Popen
    monkeypatch.setattr(check.subprocess, "Popen", lambda *a, **k: popen(*a, **{**k, "stdout": end}))

    def stop() -> None:
        os.read(read, 4)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    assert run_child([sys.executable, "-c", script], dict(os.environ), to_stderr=False) == 143
    thread.join()
    os.close(read)
    os.close(end)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
