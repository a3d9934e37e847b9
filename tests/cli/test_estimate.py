"""`safelight estimate`: the whole command, on tensors without content."""

from __future__ import annotations

import json

import pytest

from safelight.cli import main

SMALL = ["--set", "model.widths=16", "--set", "model.norm_groups=8", "--set", "model.attention=", "--batch-size", "4"]


def test_the_command_answers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(
        "safelight.requirements.largest_batch", lambda budget, trace: 7
    )  # traces a dozen times otherwise
    assert main(["estimate", "--no-time", "--json", *SMALL]) == 0
    found = json.loads(capsys.readouterr().out)
    weights = 4 * found["parameters"]
    assert found["memory"]["parameters"] == found["memory"]["gradients"] == weights
    assert found["memory"]["optimizer"] == pytest.approx(2 * weights, rel=0.01), "two moments"
    assert found["memory"]["peak"] > 5 * weights
    assert found["largest_micro_batch"] == 7
