"""The words of `safelight run`: which are ours, which the script's."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import ask, refused

from safelight.cli.run import divide, subject_of


@pytest.mark.parametrize(
    ("words", "ours", "target"),
    [
        ("train.py --run x", "", "train.py --run x"),
        ("--run a --loggers jsonl train.py --lr 1e-4", "--run a --loggers jsonl", "train.py --lr 1e-4"),
        ("--run=runs/mine --check train.py --check", "--run=runs/mine --check", "train.py --check"),
        ("--steps 5 -m project.train -m x", "--steps 5", "-m project.train -m x"),
        ("--quiet - x", "--quiet", "- x"),
        ("--check -- --odd.py -x", "--check", "--odd.py -x"),
        ("--check --select TAR --sarif - a.py --x", "--check --select TAR --sarif -", "a.py --x"),
        ("--help", "--help", ""),
        ("--run", "--run", ""),
        ("--lr 3 a.py", "--lr", "3 a.py"),
    ],
)  # fmt: skip
def test_options_end_where_the_script_begins(words: str, ours: str, target: str) -> None:
    assert divide(words.split()) == (ours.split(), target.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], ["Name a script"]),
        (["--quiet"], ["Name a script"]),
        (["--lr", "3", "a.py"], ["--lr"]),
        (["--steps", "0", "a.py"], ["--steps is 0"]),
        (["--steps", "many", "a.py"], ["--steps"]),
        (["--json", "a.py"], ["--json belongs to --check"]),
        (["--strict", "a.py"], ["--strict belongs to --check"]),
        (["--select", "TAR", "a.py"], ["--select belongs to --check"]),
        (["--write-baseline", "a.py"], ["--write-baseline belongs to --check"]),
        (["--check", "--select", "TRA001", "a.py"], ["TRA001"]),
        (["--loggers", "paper", "a.py"], ["no logger 'paper'"]),
    ],
)
def test_wrong_words_are_refused(words: list[str], message: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, 2, message, "run", *words)


def test_a_folder_with_a_record_is_refused_before_the_script_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "record.sqlite").touch()
    refused(capsys, 2, ["already holds a record"], "run", "--run", str(tmp_path), "a.py")


def test_a_program_that_calls_main_goes_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its process is not replaced by the script."""
    script = tmp_path / "leaves.py"
    script.write_text("import sys; print('script'); sys.exit(7)")
    code, out, told = ask(capfd, "run", str(script))
    assert (code, out) == (7, "script\n")
    assert told == "Safelight: no training was seen: the script ended before an optimizer of torch made an update.\n"


@pytest.mark.parametrize(
    ("target", "name", "has_script"),
    [(["a.py", "x"], "a.py", True), (["-m", "pack.part"], "pack/part.py", True), (["-m", "pytest"], "-m pytest", False),
     (["none.py"], "none.py", False), (["-"], "-", False), (["-m"], "-m", False)],
)  # fmt: skip
def test_the_file_whose_comments_count(
    target: list[str], name: str, has_script: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in (tmp_path / "a.py", tmp_path / "pack" / "part.py"):
        file.parent.mkdir(exist_ok=True)
        file.touch()
    found = subject_of(target)
    assert (found.name, found.script is not None) == (name, has_script)
