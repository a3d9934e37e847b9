"""Pictures while training: in the folder and the record, and a failure of one costs itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny import Quiet, fingerprints, tiny

from safelight.record.history import open_history
from safelight.start import train
from safelight.training import pictures


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


def looks(run: Path) -> list[tuple[int, bool]]:
    with open_history(run / "record.sqlite") as history:
        return [(each.facts["after"], each.facts["ended"]) for each in history.events("appearance")]


def test_every_picture_is_looked_at_and_the_last_one_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny(train__steps=4, sample__every=2)
    train(config, run=tmp_path / "healthy", terminal=Quiet())
    assert looks(tmp_path / "healthy") == [(2, False), (4, True)]
    monkeypatch.setattr("safelight.observing.sample_check.RealAppearance", lambda *_: 1 // 0)
    train(config, run=tmp_path / "sick", terminal=(screen := Quiet()))
    assert sum("The measurement of the samples could not be made" in line for line in screen.said) == 2
    assert fingerprints(tmp_path / "sick") == fingerprints(tmp_path / "healthy")


def test_a_run_that_its_patience_ends_has_a_last_picture(tmp_path: Path) -> None:
    settings = {"train__patience": 1, "checkpoint__every": 2, "optimizer__lr": 1e-12, "train__preflight": "off"}
    run = train(tiny(train__steps=40, sample__every=40, **settings), run=tmp_path / "run", terminal=Quiet())
    assert run.step < 40
    assert looks(run.path) == [(run.step, True)]
    assert f"step_{run.step:08d}.png" in files(run.path)


def test_time_left_has_the_pictures_that_are_still_to_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture takes so many seconds, by a clock of the test; the steps take none."""
    now = [0.0]
    monkeypatch.setattr("safelight.training.pictures.time", SimpleNamespace(perf_counter=lambda: now[0]))
    true = pictures.draw_preview

    def draw(*given: Any, **named: Any) -> Any:
        now[0] += 100.0
        return replace(true(*given, **named), seconds_beyond=0.0)

    monkeypatch.setattr(pictures, "draw_preview", draw)
    monkeypatch.setattr("safelight.training.step_reporter.SYSTEM_EVERY", 1)
    run = train(tiny(train__steps=8, sample__every=2), run=tmp_path / "every", terminal=Quiet())
    with open_history(run.path / "record.sqlite") as history:
        left = dict(zip(*(each.tolist() for each in history.raw("speed/left")), strict=True))
    assert [int(left[step] // 100) for step in (2, 4, 6)] == [3, 2, 1]
