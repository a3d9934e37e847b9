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


def test_noise_can_be_chosen(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pages = []
    ddim = ["--sampler=ddim", "--sample-steps=3"]
    for flags in (ddim, [*ddim, "--eta=1"], [*ddim, "--temperature=0.5"], ["--sampler=ddpm", "--variance=large"]):
        code, _, err = ask(capsys, "sample", str(copied), "-n=1", "-o=page.png", *flags)
        assert code == 0, err
        pages.append(Path("page.png").read_bytes())
    assert len(set(pages)) == 4
    for flags, words in (
        (["--eta=1", "--sampler=ddpm"], "only the sampler ddim has it"),
        (["--sampler=ddim", "--eta=2"], "eta goes from 0 to 1"),
        (["--temperature=0"], "temperature is above 0"),
        (["--variance=large", "--sampler=ddim"], "belongs to the sampler ddpm"),
        (["--variance=huge"], "--variance"),
    ):
        code, _, err = ask(capsys, "sample", str(copied), "-n=1", "-o=page.png", *flags)
        assert code == 2
        assert words in " ".join(err.split())


def test_the_way_out_of_the_noise(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    widths = []
    for timesteps in ("auto", "999,500,0", "500"):
        words = ("--sampler=ddim", "--sample-steps=10", "--denoising", timesteps, "-o=strip.png")
        code, out, err = ask(capsys, "sample", str(copied), *words)
        assert (code, out) == (0, "strip.png\n"), err
        with Image.open("strip.png") as image:
            widths.append((image.width - 28) // 68)
    assert widths == [9, 4, 2], "columns, with the image itself"
    assert ask(capsys, "sample", str(copied), "--denoising=first")[0] == 2


def test_a_timelapse_again(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from safelight.run import RunFolder

    steps = [step for step, _ in RunFolder(copied).pictures()]
    chosen = f"{steps[0]},{steps[-1]}"
    assert ask(capsys, "sample", str(copied), "--timelapse", chosen, "--fps=2", "-o=mine.gif")[:2] == (0, "mine.gif\n")
    with Image.open("mine.gif") as image:
        assert image.info["duration"] in (500, 2500)
    for flags, words in (
        (["77"], "no picture of step 77"),
        (["all", "-o=mine.png"], "is a GIF"),
        (["x"], "--timelapse"),
    ):
        code, _, err = ask(capsys, "sample", str(copied), "--timelapse", *flags)
        assert code == 2
        assert words in " ".join(err.split())
