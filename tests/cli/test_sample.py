"""`safelight sample`: a page or a folder of images, the same for the same seed."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import ask
from PIL import Image


def test_a_name_decides_between_a_page_and_a_folder(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, seed in (("one.png", "3"), ("two.PNG", "3"), ("three.png", "4")):
        assert ask(capsys, "sample", str(copied), "-n=2", "-o", name, "--seed", seed)[:2] == (0, f"{name}\n")
    assert Path("one.png").read_bytes() == Path("two.PNG").read_bytes() != Path("three.png").read_bytes()
    assert ask(capsys, "sample", str(copied), "-n=3", "-o", "images")[:2] == (0, "images\n")
    found = sorted(Path("images").iterdir())
    assert len(found) == 3
    with Image.open(found[0]) as image:
        assert image.size == (8, 8)


def test_weights_and_steps_can_be_chosen(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pages = []
    for flags in ([], ["--raw"], ["--ema=0.2"], ["--sample-steps=2"], ["--sampler=ddim", "--step=6"]):
        code, _, err = ask(capsys, "sample", str(copied), "-n=1", "-o=page.png", *flags)
        assert code == 0, err
        pages.append(Path("page.png").read_bytes())
    assert pages[1] != pages[0] != pages[3]
