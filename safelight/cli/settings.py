"""safelight settings"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from safelight.cli.flags import options
from safelight.errors import UsageError

if TYPE_CHECKING:
    from safelight.config.reference import Setting


@dataclass(frozen=True, kw_only=True)
class Command:
    """Show settings with their defaults: all of them, or those that a word is about (mixed precision, ema decay, …)."""

    word: Annotated[tuple[str, ...], Positional, arg(metavar="[WORD]", help_behavior_hint="")] = ()
    """What you look for, in your words; or a key, a section, or the flag of another trainer."""
    json: options.Json = False

    def run_command(self) -> None:
        from safelight.config.phrases import nearest_setting
        from safelight.config.resolve import types_of_fields
        from safelight.config.search import search
        from safelight.handbook import elsewhere

        word = " ".join(self.word)
        found = search(word)
        if not found.settings and not found.notes:
            near = elsewhere(word, besides="settings")
            near = f".{near}" if near else nearest_setting(word, types_of_fields())
            raise UsageError(f"No setting is about {word!r}{near} `safelight settings` lists all of them.")
        if self.json:
            listed = [asdict(setting) | {"flag": setting.flag} for setting in found.settings]
            print(json.dumps({"settings": listed, "notes": found.notes}, indent=1))
            return
        for note in found.notes:
            print(note)
        for setting in found.settings:
            print(in_words(setting))
        if found.settings:
            print("\nSet one: safelight train --set KEY=VALUE, or in a file: --config FILE")


def in_words(setting: Setting) -> str:
    flag = f"  ({setting.flag})" if setting.flag else ""
    return f"{setting.key} = {setting.default}{flag}\n    {setting.help}"
