"""`safelight train`: sets that are small or broken, and refusals that leave nothing behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import TINY, ask, make_images, refused


def test_fewer_images_than_a_batch_train_all_the_same(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Others wait for ever for a batch that never fills."""
    make_images(here / "images", 3)
    code, out, err = ask(capsys, "train", "images", "--run", "run", *TINY, "--image-size", "8")
    assert code == 0, err
    assert out == "run\n"
    assert json.loads((here / "run/run.json").read_text())["status"] == "finished"


def test_images_that_cannot_be_read_are_told_and_nothing_is_made(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_images(here / "images", 3)
    for name in ("a.png", "b.png"):
        (here / "images" / name).write_bytes(b"no image")
    refused(capsys, 3, ["2 of 5 files", "a.png", "data.max_bad"], "train", "images", "--run", "run", *TINY)
    assert not (here / "run").exists()


@pytest.mark.parametrize("arguments", [["nothing-here"], ["empty"], ["--device", "tpu"], ["--lr", "nan"]], ids=" ".join)
def test_a_refusal_leaves_no_run_folder(here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert ask(capsys, "train", *arguments)[0] in (2, 3)
    assert not (here / "runs").exists()
