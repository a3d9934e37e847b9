"""What a shell completes is what the commands take."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from safelight.cli import COMMANDS, main
from safelight.cli.flags.completion import flags_of


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["--completion", shell]) == 0
    return capsys.readouterr().out


def complete(code: str, *words: str) -> list[str]:
    """As bash does it: the last word is being typed."""
    typed = " ".join(f"'{word}'" for word in words)
    ask = f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _safelight; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", f"{code}\n{ask}"], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_bash_completes_commands_and_their_flags(capsys: pytest.CaptureFixture[str]) -> None:
    code = script("bash", capsys)
    assert complete(code, "safelight", "da") == ["dashboard", "data"]
    assert complete(code, "safelight", "train", "--no-d") == ["--no-dashboard"]
    assert complete(code, "safelight", "metrics", "--no-d") == []


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_know_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = script(shell, capsys)
    assert all(verb in code for verb in COMMANDS)
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=code, text=True, check=True)


@pytest.mark.parametrize("verb", ["train", "compare", "doctor"])
def test_flags_are_those_of_the_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    shown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", capsys.readouterr().out.partition("options")[2]))
    assert set(flags_of(verb)) <= shown


def test_an_unknown_shell_is_refused_with_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--completion", "bas"]) == 2
    assert "Did you mean 'bash'" in capsys.readouterr().err
    assert main(["--completion"]) == 2
