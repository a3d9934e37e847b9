"""`safelight export`: a folder that diffusers loads, with the weights and the class that were chosen."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import ask, refused


def weights(folder: str) -> bytes:
    [path] = Path(folder).rglob("*.safetensors")
    return path.read_bytes()


@pytest.mark.usefixtures("here")
def test_the_pipeline_has_the_chosen_weights(trained_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder, flags in (("ema", []), ("raw", ["--raw"])):
        assert ask(capsys, "export", str(trained_run), "-o", folder, *flags)[:2] == (0, f"{folder}\n")
        assert Path(folder, "model_index.json").is_file()
    assert weights("ema") != weights("raw")


@pytest.mark.usefixtures("here")
def test_a_class_has_to_be_one_of_the_model(conditional_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, "export", str(conditional_run), "-o=three", "--label=3")[0] == 0
    refused(capsys, 2, ["--label is '10'", "none and 0 to 9"], "export", str(conditional_run), "--label=10")
