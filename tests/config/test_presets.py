"""Presets and short names: each healthy, described, and of settings that exist."""

from __future__ import annotations

import pytest

from safelight.config.check import check
from safelight.config.presets import ABOUT, FLAGS, OBJECTIVES, PRESETS, default_preset, settings_of_objective
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
