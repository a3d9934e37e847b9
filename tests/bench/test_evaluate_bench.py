"""The benches of the evaluation: what they measure is there, and they can fail."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench import calibration, evaluate, measure
from safelight.evaluate import Moments
from safelight.evaluate.significance import Verdict

SMALL = [
    "--dimensions",
    "24",
    "--rounds",
    "2",
    "--few",
    "12",
    "--streamed",
    "500",
    "2000",
    "--streamed-dimension",
    "16",
]


def test_the_table_of_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "RESULTS", tmp_path)
    assert evaluate.main(SMALL) == 0
    text = (tmp_path / "evaluate.md").read_text()
    for words in (
        "d = 24: faster than sqrtm",
        "root of the reference, once",
        "streaming 2,000 features",
        "6 main axes",
    ):
        assert words in text
    monkeypatch.setattr(evaluate, "WANTED", {24: 1e6})
    assert evaluate.main(SMALL) == 1


def test_memory_that_grows_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hoarder(Moments):
        __slots__ = ("kept",)

        def add(self, features: np.ndarray) -> Moments:
            self.kept = [*getattr(self, "kept", []), features.copy()]
            return super().add(features)

    assert evaluate.stream([500, 5000], 16)[1]
    monkeypatch.setattr(evaluate, "Moments", Hoarder)
    assert not evaluate.stream([500, 5000], 16)[1]


def test_the_table_of_calibration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "RESULTS", tmp_path)
    monkeypatch.setattr(calibration, "RATIOS", (4,))
    calibration.main(["--trials", "4"])
    text = (tmp_path / "calibration.md").read_text()
    for words in ("Gaussian, far, d = 64, N = 4 d", "rectified, near, d = 32", "equal checkpoints, 90.0%", "5% copies"):
        assert words in text


def test_error_bars_that_are_too_small_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = [calibration.gaussian(8, 0.3)]
    monkeypatch.setattr(calibration, "RATIOS", (8,))
    assert calibration.cover(worlds, 40)[1]
    monkeypatch.setattr("safelight.evaluate.statistics.jackknife.Replicates.variance", lambda *_: 1e-9)
    assert not calibration.cover(worlds, 40)[1]


def test_a_rule_that_always_changes_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "compare", lambda *_: Verdict(-1.0, 1.0, -1.0, 0.1, True, 1.0, True, ""))
    assert not calibration.decide(8, 4, 5, 2000)[1]
