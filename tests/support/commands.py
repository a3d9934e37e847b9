"""Commands as a person gives them: run in this process, with what they printed and how they ended."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from safelight.cli import main

TINY = [
    "--steps=2",
    "--batch-size=8",
    "--set=model.widths=16",
    "--set=model.norm_groups=8",
    "--set=model.layers=1",
    "--set=model.attention=",
    "--set=model.conditional=false",
    "--set=sample.steps=2",
    "--set=sample.count=4",
    "--set=ema.snapshots=0",
]


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a command, in this process."""
    capsys.readouterr()
    try:
        code = main(arguments)
    except SystemExit as ended:  # the parser of flags ends so
        code = int(ended.code or 0)
    told = capsys.readouterr()
    return code, told.out, told.err


def refused(capsys: pytest.CaptureFixture[str], code: int, words: list[str], *arguments: str) -> str:
    """A message of one screen on stderr that says all the words, the exit code, and no traceback."""
    found, out, err = ask(capsys, *arguments)
    assert found == code, err
    assert "Traceback" not in err
    assert out == ""
    flat = " ".join(err.split())
    assert all(word in flat for word in words), err
    assert len(err.splitlines()) <= 24
    return err


def make_images(folder: Path, count: int) -> None:
    folder.mkdir()
    random = np.random.default_rng(0)
    for index in range(count):
        Image.fromarray(random.integers(0, 255, (8, 8), np.uint8)).save(folder / f"{index}.png")
