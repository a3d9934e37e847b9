"""`safelight demo`: a trained run, its samples and a pipeline, by one command."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import ask, refused
from PIL import Image

from safelight.cli import train


def test_a_demo_leaves_samples_and_a_model(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a smaller network than anybody else's."""
    small = ("model.widths=16", "model.norm_groups=8", "model.layers=1", "model.attention=", "sample.steps=2",
             "train.preflight=off", "evaluate.every=0", "ema.snapshots=0")  # fmt: skip
    command = train.Command
    monkeypatch.setattr(train, "Command", lambda **given: command(**given, set=small))
    code, out, err = ask(capsys, "demo", "--steps", "2")
    assert code == 0, err
    assert out.split() == ["runs/demo", "runs/demo/samples/final.png", "runs/demo/pipeline"]
    with Image.open(here / "runs/demo/samples/final.png") as image:
        assert image.width > 80
    assert (here / "runs/demo/pipeline/model_index.json").is_file()
    assert "next       safelight dashboard runs/demo" in err
    refused(capsys, 2, ["runs/demo", "--force"], "demo", "--steps", "2")
