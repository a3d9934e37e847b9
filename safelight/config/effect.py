"""Settings that have an effect with one choice only: the choice is made, or they are refused or warned about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from safelight.config.tree import EFFECTIVE_ONLY_WITH, OF_THE_UNET, Config
from safelight.errors import UsageError


@cache
def choice_of(key: str) -> tuple[str, Any] | None:
    """("ema.kind", "exponential") for `ema.decay`; None for a setting that always has an effect."""
    return next(
        (
            (choice, value)
            for choice, values in EFFECTIVE_ONLY_WITH.items()
            for value, keys in values.items()
            if key in keys
        ),
        None,
    )


def select_parent_options(config: Config, settings: Mapping[str, Any], *, refuse: bool) -> tuple[Config, list[str]]:
    """The config with the choices that these settings belong to, and what was chosen, in words. `refuse`: a choice
    that stands beside them and leaves them without effect is an error; else it is left to `without_effect`."""
    chosen: list[str] = []
    for choice in EFFECTIVE_ONLY_WITH:
        wanted = {key: belongs[1] for key in settings if (belongs := choice_of(key)) and belongs[0] == choice}
        missed = [key for key, value in wanted.items() if value != value_at(config, choice)]
        if not missed or isinstance(wanted[missed[0]], bool) or (choice in settings and not refuse):
            continue  # a switch that is off is left to `without_effect`
        key, value = missed[0], wanted[missed[0]]
        if choice in settings:
            changed = [each for each in missed if value_at(config, each) != value_at(Config(), each)]
            for each in changed:
                words = _words(config, each, choice, wanted[each])
                raise UsageError(f"{words} Set {choice}={_spelt(wanted[each])}, or leave it out.")
        elif len({*wanted.values()}) > 1:
            keys = " and ".join(wanted)
            raise UsageError(f"{keys} belong to different values of {choice}. Leave one of them out, or set {choice}.")
        else:
            section, _, name = choice.partition(".")
            config = replace(config, **{section: replace(getattr(config, section), **{name: value})})
            chosen.append(f"{key} belongs to {choice} {value}, which is chosen.")
    return config, chosen


def without_effect(config: Config) -> Iterator[str]:
    """Those of the settings that differ from their default, in words."""
    default = Config()
    for choice, values in EFFECTIVE_ONLY_WITH.items():
        for wanted, keys in values.items():
            for key in keys:
                if value_at(config, choice) != wanted and value_at(config, key) != value_at(default, key):
                    yield _words(config, key, choice, wanted)


def refuse_own_model(settings: Mapping[str, Any]) -> None:
    """Refuses settings of the U-Net with a model that the user brings: nothing is built here."""
    if found := [key for key in settings if key in OF_THE_UNET]:
        raise UsageError(f"{', '.join(found)} would have no effect: the model is your own. Leave it out.")


def value_at(config: Config, key: str) -> Any:
    section, _, name = key.partition(".")
    return getattr(getattr(config, section), name)


def _words(config: Config, key: str, choice: str, wanted: Any) -> str:
    now = value_at(config, choice)
    return f"{key} has no effect while {choice} is {_spelt(now)}: it belongs to {_spelt(wanted)}."


def _spelt(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
