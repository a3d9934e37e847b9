"""Presets and short names: each healthy, described, and of settings that exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from safelight.config.check import check
from safelight.config.presets import (
    ABOUT,
    FLAGS,
    OBJECTIVES,
    PRESETS,
    default_preset,
    fit_to_source,
    settings_of_objective,
)
from safelight.config.resolve import (
    resolve,
    types_of_fields,
)
from safelight.errors import UsageError


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_healthy_and_described(name: str) -> None:
    config = resolve(preset=name)
    assert check(config) == []
    assert ABOUT[name]


def test_presets_are_those_of_the_help() -> None:
    assert list(ABOUT) == list(PRESETS) == ["digits", "tiny", "small", "base"]


@pytest.mark.parametrize("key", FLAGS.values())
def test_every_flag_stands_for_a_setting(key: str) -> None:
    assert key in types_of_fields()


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_is_healthy_and_says_everything(name: str) -> None:
    """Over any other one: a config file of a flow, with `--objective v`, is one of v."""
    for before in OBJECTIVES.values():
        config = resolve(settings={**before, **settings_of_objective(name)})
        assert check(config) == []
        assert config == resolve(settings=settings_of_objective(name))
    assert resolve(settings=settings_of_objective("v")) == resolve(), "the default"


def test_an_objective_that_is_none_is_told() -> None:
    assert settings_of_objective(None) == {}
    with pytest.raises(UsageError, match="'rectified', but it must be one of v, epsilon, sample, flow, edm"):
        settings_of_objective("rectified")


@pytest.mark.parametrize(
    ("settings", "file", "preset"),
    [
        ({}, None, "digits"),
        ({"data.source": "digits"}, None, "digits"),
        ({"data.source": "photos"}, None, "tiny"),
        ({}, "config.yaml", None),
    ],
)
def test_preset_that_goes_without_saying(settings: dict, file: str | None, preset: str | None) -> None:
    assert default_preset(settings, file) == preset


@pytest.mark.parametrize(
    ("preset", "folders", "settings", "fitted", "words"),
    [
        ("digits", 0, {}, {"model.conditional": False}, "no subfolders"),
        ("digits", 1, {}, {"model.conditional": False}, "no subfolders"),
        ("digits", 2, {}, {}, "trained at 8 px"),
        ("digits", 0, {"model.conditional": True}, {}, "trained at 8 px"),  # it was asked for: the data says no
        ("digits", 0, {"data.image_size": 16}, {"model.conditional": False}, "learns none"),
        ("tiny", 0, {}, {}, ""),
        (None, 0, {}, {}, ""),
    ],
)
def test_a_preset_fits_the_folder_or_says_so(
    tmp_path: Path, preset: str | None, folders: int, settings: dict[str, Any], fitted: dict[str, Any], words: str
) -> None:
    for name in range(folders):
        (tmp_path / str(name)).mkdir()
    said: list[str] = []
    assert fit_to_source(preset, {"data.source": str(tmp_path), **settings}, None, said.append) == fitted
    assert words in " ".join(said)
    assert bool(said) == bool(words)


def test_a_config_file_is_not_changed(tmp_path: Path) -> None:
    assert fit_to_source("digits", {"data.source": str(tmp_path)}, "config.yaml", print) == {}
    assert fit_to_source("digits", {"data.source": "digits"}, None, print) == {}
