"""How a run is made again: from its own words, and without harm from a stranger's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from folders import make_run

from safelight.config.presets import PRESETS
from safelight.config.resolve import flatten, resolve, to_dict
from safelight.pages.data.reproduce import nearest_preset, reproduce
from safelight.run import RunFolder


@pytest.mark.parametrize("preset", PRESETS)
def test_what_differs_is_what_was_changed(preset: str) -> None:
    config = flatten(to_dict(resolve(preset=preset, settings={"optimizer.lr": 0.123, "data.channels": 1})))
    assert nearest_preset(config) == (preset, {"optimizer.lr": (config_lr(preset), 0.123)})


def config_lr(preset: str) -> float:
    return resolve(preset=preset).optimizer.lr


def test_commands_commits_and_settings_are_said(tmp_path: Path) -> None:
    run = RunFolder(make_run(tmp_path / "my run"))
    script = {"name": "/home/me/train.py", "commit": "b" * 40, "changed": True}
    facts = {"commands": ["safelight train x"], "origin": {"script": script, "packages": {"torch": "2.9"}}}
    found = reproduce(run, facts, flatten(to_dict(resolve(file=run.config))), "my run")
    assert found["commands"] == ["safelight train x"]
    assert found["script"] == {"name": "train.py", "commit": "b" * 40, "changed": True}  # not where it lies
    assert found["again"] == "safelight train --config 'my run/config.yaml'"
    assert found["yaml"] == run.config.read_text()
    assert (found["versions"], found["seed"]) == ({"torch": "2.9"}, 0)


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"origin": 3, "commands": "x", "versions": [], "data": 4},
        {"origin": {"script": [], "code": {"commit": "$(rm)"}}, "commands": [1, {}, None]},
    ],
)
def test_a_strangers_words_do_no_harm(tmp_path: Path, facts: dict[str, Any]) -> None:
    (tmp_path / "config.yaml").symlink_to("/etc/hostname")
    found = reproduce(RunFolder(tmp_path), facts, None, "x")
    json.dumps(found, allow_nan=False)
    assert found["commands"] == []
    assert (found["script"], found["code"], found["yaml"], found["again"]) == (None, None, None, None)
