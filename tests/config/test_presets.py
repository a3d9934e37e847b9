"""Presets and short names: each healthy, described, and of settings that exist."""

from __future__ import annotations

import pytest

from safelight.config.check import check
from safelight.config.presets import ABOUT, FLAGS, PRESETS, default_preset
from safelight.config.resolve import (
    resolve,
    types_of_fields,
)


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
