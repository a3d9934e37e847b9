from __future__ import annotations

import importlib
import subprocess
import sys
from dataclasses import fields

import pytest

from safelight import __version__
from safelight.cli import COMMANDS, main

HEAVY = ("torch", "numpy", "diffusers", "accelerate", "safetensors", "PIL", "sklearn", "scipy", "yaml", "psutil")
HELP = [["--help"], *([verb, "--help"] for verb in COMMANDS)]

PROBE = """
import sys
from safelight.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as ended:
    code = ended.code
print(code, *sorted(name for name in sys.modules if "." not in name), file=sys.stderr)
"""


def probe(*arguments: str, script: str = PROBE) -> tuple[int, str, set[str]]:
    """(exit code, stdout, modules that were imported) of a fresh process."""
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=300)
    code, *modules = done.stderr.splitlines()[-1].split()
    return int(code), done.stdout, set(modules)


@pytest.mark.parametrize("arguments", HELP, ids=" ".join)
def test_help_answers_without_the_heavy_libraries(arguments: list[str]) -> None:
    code, out, modules = probe(*arguments)
    assert code == 0
    assert "usage: safelight" in out
    assert modules.isdisjoint(HEAVY), f"{sorted(modules.intersection(HEAVY))} are imported only to print the help"


def test_the_probe_sees_imports() -> None:
    """Negative control."""
    assert "numpy" in probe("--help", script="import numpy\n" + PROBE)[2]


@pytest.mark.parametrize(
    "arguments",
    [["trian"], ["train", "--stpes", "5"], ["train", "--steps", "x"], ["train", "--set", "a=1"]],
    ids=" ".join,
)
def test_a_wrong_word_is_told_before_torch_is_imported(arguments: list[str]) -> None:
    code, out, modules = probe(*arguments)
    assert code == 2
    assert out == ""
    assert modules.isdisjoint({"torch", "numpy", "diffusers"})


@pytest.mark.parametrize("verb", COMMANDS)
def test_the_help_of_a_verb_names_every_flag(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    command = importlib.import_module(f"safelight.cli.{verb}").Command
    positional = {
        "run": "RUN",
        "script": "SCRIPT",
        "runs": "RUN",
        "data": "DATA",
        "subject": "RUN|LOG|DATA",
        "signals": "SIGNAL",
        "what": "RUN | IMAGES",
        "words": "get inception",
        "source": "--from",
        "code": "CODE",
        "word": "WORD",
    }
    for field in fields(command):
        flag = f"--{field.name.replace('_', '-')}"
        assert flag in told or positional.get(field.name, "?") in told, f"{verb} --help does not name {flag}"


def test_the_list_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    assert all(verb in told and about in told for verb, about in COMMANDS.items())
    assert len(told.splitlines()) <= 24, "one screen"
    assert main([]) == 2
    assert main(["help"]) == 0


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"safelight {__version__}\n"


def test_python_m_safelight_is_the_same() -> None:
    done = subprocess.run([sys.executable, "-m", "safelight", "trian"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "Did you mean 'train'?" in done.stderr


def test_the_help_of_train_has_the_defaults_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    from safelight.config.resolve import resolve

    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "For example: safelight train photos/" in text
    tiny, digits = resolve(preset="tiny"), resolve(preset="digits")
    for name, section, key in [
        ("steps", "train", "steps"), ("batch size", "train", "batch_size"), ("image size", "data", "image_size"),
        ("lr", "optimizer", "lr"),
    ]:  # fmt: skip
        usual, small = (getattr(getattr(config, section), key) for config in (tiny, digits))
        assert f"{name} {usual:g} ({small:g})" in text.replace("20000", "20000"), name
    assert f"device {tiny.train.device}, precision {tiny.train.precision}, accumulate {tiny.train.accumulate}" in text
