"""Cards have every field whatever was recorded, and their commands can be pasted without fear."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from folders import FINDING, make_run

from safelight.pages.data.cards import card, command
from safelight.run import RunFolder


@pytest.mark.parametrize(
    ("settings", "name", "shown"),
    [
        ({"optimizer.lr": 0.001}, "runs/a", "safelight train --config runs/a/config.yaml --set optimizer.lr=0.001"),
        ({"optimizer.lr": "1; reboot"}, "a", "safelight train --config a/config.yaml --set 'optimizer.lr=1; reboot'"),
        ({"optimizer.lr": "$(id)"}, "a b", "safelight train --config 'a b/config.yaml' --set 'optimizer.lr=$(id)'"),
        ({"optimizer.lr": "1\nreboot"}, "a", None),
        ({"optimizer.lr": "\x1b]0;x"}, "a", None),
        ({"; reboot": 1}, "a", None),
        ({"ema.profiles": [0.05, 0.1], "model.conditional": True}, "a",
         "safelight train --config a/config.yaml --set 'ema.profiles=[0.05, 0.1]' --set model.conditional=true"),
        ({}, "a", None),
    ],
)  # fmt: skip
def test_a_command_can_be_pasted_without_fear(tmp_path: Path, settings, name, shown) -> None:
    run = RunFolder(make_run(tmp_path / "a", steps=4, pictures=False))
    assert command(run, name, settings, "unsafe") == shown


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"code": 5, "cause": None, "severity": "fatal", "step": "x", "evidence": "none", "fix": [], "ruled_out": 3},
        {"evidence": [1, {"value": float("nan"), "steps": [1]}, {"steps": [1, "b"], "signal": {}}], "over": 1.5},
        {"fix": {"set": [1], "text": 7, "safety": {}}, "ruled_out": [1, None], "confidence": "sure"},
    ],
)
def test_a_card_has_every_field_whatever_was_recorded(tmp_path: Path, facts) -> None:
    found = card(facts, RunFolder(tmp_path), [], "a")
    json.dumps(found, allow_nan=False)
    whole = card(FINDING, RunFolder(tmp_path), [], "a")
    assert found.keys() == whole.keys()
    assert found["severity"] == "info"
