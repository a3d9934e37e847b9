"""Pictures while training: in the folder and the record, and a failure of one costs itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny import Quiet, fingerprints, tiny

from safelight.start import train


def files(run: Path) -> set[str]:
    return {path.name for path in (run / "samples").iterdir()}


def test_a_picture_that_fails_costs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny(train__steps=4, sample__every=2)
    train(config, run=tmp_path / "healthy", terminal=Quiet())
    kinds = {f"{kind}_{step:08d}.png" for kind in ("step", "denoising", "raw_and_averaged") for step in (2, 4)}
    assert kinds | {"contact_sheet.png", "timelapse.gif"} == files(tmp_path / "healthy")
    monkeypatch.setattr("safelight.training.pictures.draw_preview", lambda *_, **__: 1 // 0)
    train(config, run=tmp_path / "sick", terminal=(screen := Quiet()))
    assert sum("The picture could not be made (ZeroDivisionError" in line for line in screen.said) == 2
    assert files(tmp_path / "sick") == {"contact_sheet.png"}
    assert fingerprints(tmp_path / "sick") == fingerprints(tmp_path / "healthy")
