"""The flags that several commands share, and how they become settings.

Imports what `--help` does not need only where it is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import FlagCreatePairsOff, Positional, UseAppendAction, arg

from safelight.errors import UsageError

if TYPE_CHECKING:
    from safelight.config import Config

# Words, not numbers: `resolve` types them, so that a flag, --set and YAML are told wrong in the same way.
Number = Annotated[str | None, arg(metavar="N", help_behavior_hint="")]
Word = Annotated[str | None, arg(metavar="NAME", help_behavior_hint="")]
File = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")]
Folder = Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")]
Flag = Annotated[bool, FlagCreatePairsOff]
Settings = Annotated[tuple[str, ...], UseAppendAction, arg(metavar="KEY=VALUE", help_behavior_hint="(repeatable)")]
RunPath = Annotated[Path, Positional, arg(metavar="RUN")]
Source = Annotated[str | None, Positional, arg(metavar="[DATA]", help_behavior_hint="")]


def read_settings(words: tuple[str, ...]) -> dict[str, str]:
    """["train.steps=5"] -> {"train.steps": "5"}."""
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"--set takes KEY=VALUE, but {word!r} has no “=”. For example: --set train.steps=500")
        found[key.strip()] = value.strip()
    return found


def settings_from(command: object) -> dict[str, Any]:
    """The settings that a command's flags stand for; --set comes last and so wins."""
    from safelight.config.flags import FLAGS

    given = {key: getattr(command, name, None) for name, key in FLAGS.items()}
    flags = {key: value for key, value in given.items() if value is not None and value is not False}
    return flags | read_settings(getattr(command, "set", ()))


def config_from(command: Any) -> Config:
    """default < preset < file < flags."""
    from safelight.config.flags import default_preset
    from safelight.config.resolve import resolve

    settings = settings_from(command)
    preset = command.preset or default_preset(settings, command.config)
    return resolve(preset=preset, file=command.config, settings=settings)


def dashboard_unless(refused: bool) -> Callable[[Path, Callable[[str], None]], object] | None:
    """What starts the dashboard beside a run, where a person looks on and wants it."""
    from safelight.pages.server.launch import start_beside, wanted

    return start_beside if wanted() and not refused else None


def print_once(what: object) -> None:
    """By the first of the processes that a launcher started."""
    if os.environ.get("RANK", "0") == "0":
        print(what)
