"""`safelight resume`: other images, a busy run, an error of the disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from commands import ask, make_images, refused


def test_other_images_than_before_are_told(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_images(Path("images"), 9)
    words = ["not those that", "9 now", "--force"]
    refused(capsys, 2, words, "resume", str(copied), "--set", "data.source=images")


def test_a_run_that_another_process_holds_is_refused(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hold = (
        "import sys; from pathlib import Path; from safelight.files import RunLock\n"
        "with RunLock(Path(sys.argv[1])):\n    print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", hold, str(copied)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        refused(capsys, 2, [str(holder.pid)], "resume", str(copied))
    finally:
        holder.communicate()  # closes its input, which ends it


def test_an_unexpected_error_of_the_disk_ends_in_words(
    copied: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "run/x")

    monkeypatch.setattr("safelight.start.resume", full)
    refused(capsys, 1, ["run/x cannot be used: No space left on device"], "resume", str(copied))


def test_a_mistake_of_ours_is_not_dressed_up(
    copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Near miss: a bug keeps its traceback, in a file that is named, or nobody could fix it."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("safelight.start.resume", broken)
    monkeypatch.setenv("SAFELIGHT_CACHE", str(tmp_path / "cache"))
    code, _, err = ask(capsys, "resume", str(copied))
    [kept] = (tmp_path / "cache").rglob("crash-*.txt")
    assert code == 1
    assert str(kept) in err
    assert "in broken\n    raise ZeroDivisionError" in kept.read_text()
