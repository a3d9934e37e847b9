"""Restarts by a launcher end where they are hopeless."""

from __future__ import annotations

from pathlib import Path

import pytest

from safelight.errors import Stopped, UsageError
from safelight.processes.restarts import is_restart, note_failure, refuse_hopeless
from safelight.run import RunFolder

FAILURES = {
    "three times at one step": ([6, 6, 6], "crashed", "failed 3 times at step 6; the last time: broke"),
    "killed without a word": ([6, 6], "training", "the last time: it was killed without a word"),
    "at different steps": ([6, 7, 6], "crashed", None),
    "twice": ([6, 6], "crashed", None),
    "stopped by a diagnosis": ([], "stopped", "would change nothing"),
}


@pytest.mark.parametrize(("failed", "status", "words"), FAILURES.values(), ids=FAILURES.keys())
def test_restarts_end_where_they_are_hopeless(
    failed: list[int], status: str, words: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path)
    for step in failed:
        note_failure(folder, step, "broke")
    folder.update_status(status=status, step=6)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "3")
    if words is None:
        refuse_hopeless(folder)
        return
    for expected in (words, None):  # nor is it the next time
        with pytest.raises(Stopped, match=expected):
            refuse_hopeless(folder)
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT")
    refuse_hopeless(folder)  # a person may try as often as they like
    assert not folder.status().get("failures")


def test_run_that_may_be_restarted_needs_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "2")
    with pytest.raises(UsageError, match="Add --run DIR"):
        is_restart(None)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("SAFELIGHT_UNATTENDED", "1", True),
        ("SAFELIGHT_UNATTENDED", "0", False),
        ("SLURM_RESTART_COUNT", "2", True),
        ("SLURM_RESTART_COUNT", "0", False),
        ("SLURM_RESTART_COUNT", "", False),
    ],
)
def test_what_starts_the_same_command_again_is_a_launcher_too(
    name: str, value: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It continues a run that is there, starts one that is not, and gives up one that fails at the same step."""
    monkeypatch.setenv(name, value)
    folder = RunFolder(tmp_path)
    assert not is_restart(tmp_path)
    folder.config.touch()
    assert is_restart(tmp_path) == expected
    for _ in range(3):
        note_failure(folder, 6, "broke")
    if expected:
        with pytest.raises(Stopped, match="failed 3 times at step 6"):
            refuse_hopeless(folder)
    else:
        refuse_hopeless(folder)
