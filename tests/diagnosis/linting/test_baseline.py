"""What was known before does not fail; what is new or worse does."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from safelight.diagnosis.coverage import Coverage
from safelight.diagnosis.doctor import Diagnosis
from safelight.diagnosis.finding import Finding, Fix
from safelight.diagnosis.linting.baseline import apply, read_baseline, write_baseline
from safelight.errors import UsageError


def finding(cause: str, severity: str = "warning") -> Finding:
    return Finding("XXX001", cause, severity, 3, 1.0, "It is so.", (), Fix("Do it."))  # type: ignore[arg-type]


def test_only_what_is_new_or_worse_counts(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    write_baseline(path, [finding("ema.too-long"), finding("lr.jump"), finding("loss.sign", "error")])
    today = [finding("ema.too-long"), finding("lr.jump", "error"), finding("loss.sign"), finding("loss.spike")]
    found = apply(Diagnosis(today, Coverage(9, 9, {}, {})), read_baseline(path))
    assert [each.cause for each in found.findings] == ["lr.jump", "loss.spike"]
    assert [each.cause for each in found.known] == ["ema.too-long", "loss.sign"]
    assert "2 findings of the baseline are still there" in found.verdict
    assert len(found.to_json()["known"]) == 2
    nothing = apply(Diagnosis(today[:1], Coverage(9, 9, {}, {})), read_baseline(path))
    assert nothing.verdict.startswith("Nothing new was found")


def test_scripts_have_their_own(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    write_baseline(path, [finding("ema.too-long")], "a.py")
    write_baseline(path, [finding("lr.jump")], "b.py")
    write_baseline(path, [finding("loss.sign")], "a.py")
    assert set(read_baseline(path)) == {("a.py", "loss.sign"), ("b.py", "lr.jump")}
    found = apply(Diagnosis([finding("lr.jump")], Coverage(9, 9, {}, {})), read_baseline(path), "a.py")
    assert len(found.findings) == 1


@pytest.mark.parametrize(
    "text",
    ["", "[" * 100_000, "\ufeff{}", "[]", "{}", '{"version": 2, "findings": []}', '{"version": 1, "findings": [3]}'],
)
def test_a_wrong_file_ends_in_words(tmp_path: Path, text: str) -> None:
    path = tmp_path / "known.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="--write-baseline"):
        read_baseline(path)


def test_a_pipe_and_a_file_of_a_run_stay_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safelight.files.reading.PATIENCE", 0.01)
    os.mkfifo(pipe := tmp_path / "pipe")
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "config.yaml").touch()
    (tmp_path / "link").symlink_to("known.json")
    with pytest.raises(UsageError, match="cannot be read"):
        read_baseline(pipe)
    for place in (pipe, tmp_path / "run" / "checkpoints" / "known.json"):
        with pytest.raises(UsageError, match=r"nobody reads|is a file of the run"):
            write_baseline(place, [finding("lr.jump")])
    write_baseline(tmp_path / "link", [finding("lr.jump")])
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert (tmp_path / "link").is_symlink()
    assert read_baseline(tmp_path / "known.json")


def test_a_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_baseline(tmp_path / "nothing.json")
    with pytest.raises(UsageError, match="cannot be written"):
        write_baseline(tmp_path / "no" / "known.json", [])


def test_the_file_is_the_same_for_the_same_findings(tmp_path: Path) -> None:
    found = [finding("lr.jump"), finding("ema.too-long")]
    for name, order in (("a", found), ("b", found[::-1])):
        write_baseline(tmp_path / name, order)
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text()
    assert json.loads((tmp_path / "a").read_text())["version"] == 1
