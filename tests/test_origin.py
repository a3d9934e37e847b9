"""The command, the script and the state of the code that a run was started by."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from safelight.origin import command, commands_with, commit_of, origin, without_secrets


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--lr", "1e-4", "data/"], ["--lr", "1e-4", "data/"]),
        (["--notify", "https://hooks.example/secret"], ["--notify", "…"]),
        (["--hf_token=abc", "--epochs", "3"], ["--hf_token=…", "--epochs", "3"]),
        (["--wandb-api-key", "abc", "x"], ["--wandb-api-key", "…", "x"]),
        (["--use-token", "--lr", "1"], ["--use-token", "--lr", "1"]),  # a flag without a value hides nothing else
        (["https://me:pw@example.org/a"], ["https://…@example.org/a"]),
    ],
)
def test_secrets_are_left_out(words: list[str], shown: list[str]) -> None:
    assert without_secrets(words) == shown


def test_our_own_command_begins_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/env/bin/safelight", "train", "my photos/", "--steps", "9"])
    program = ModuleType("__main__")
    program.__file__ = "/env/bin/safelight"
    monkeypatch.setitem(sys.modules, "__main__", program)  # a worker of a parallel test run has no file
    assert command() == "safelight train 'my photos/' --steps 9"
    assert origin()["script"] is None


def test_a_script_is_named_with_its_commit_and_whether_it_was_changed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import json, safelight.origin as o\nprint(json.dumps(o.origin(is_captured=True)))\n")

    def git(*words: str) -> str:
        line = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "a")
    run = [sys.executable, "train.py", "--lr", "0.1"]
    first = json.loads(subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True).stdout)
    assert first["command"] == "safelight run train.py --lr 0.1"
    assert (first["script"]["name"], first["script"]["changed"]) == ("train.py", False)
    assert first["script"]["commit"] == git("rev-parse", "HEAD")
    script.write_text(f"{script.read_text()}# changed\n")
    again = json.loads(subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True).stdout)
    assert again["script"]["changed"] is True
    assert again["script"]["sha256"] != first["script"]["sha256"]


def test_a_folder_without_a_repository_has_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit_of(tmp_path) is None


def test_a_python_without_arguments_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [])
    program = ModuleType("__main__")
    program.__file__ = "/somewhere/program.py"
    monkeypatch.setitem(sys.modules, "__main__", program)
    assert str(command()).startswith(("python", "safelight"))
    assert origin()["packages"]["python"]


def test_commands_are_kept_in_their_order() -> None:
    assert commands_with(None, "a") == ["a"]
    assert commands_with(["a", 3], "b") == ["a", "b"]
    assert commands_with(["a"], None) == ["a"]
