"""Settings in words."""

from __future__ import annotations

from safelight.config.reference import UNSET, settings, spell


def test_settings_have_default_help_and_flag() -> None:
    found = {setting.key: setting for setting in settings()}
    steps = found["train.steps"]
    assert (steps.type, steps.default, steps.flag) == ("a whole number", "20000", "--steps")
    assert steps.help == "Optimizer steps of the whole run."
    assert (found["data.source"].flag, found["ema.width"].flag) == ("DATA", None)


def test_values_are_spelt_as_they_are_written() -> None:
    assert [spell(value) for value in (None, True, (1, 2), 0.0001, "x")] == [UNSET, "true", "[1, 2]", "0.0001", "x"]
