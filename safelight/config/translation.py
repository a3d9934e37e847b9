"""Flags of other trainers on our command line: translated where ours mean the same, rejected with a hint where not."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from safelight.config.aliases import ALREADY_DONE, INSTEAD_OF_FLAG, SWITCHES, setting_of, value_of
from safelight.config.presets import FLAGS
from safelight.errors import UsageError

TRUE, FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def translate(arguments: Sequence[str], flags: Collection[str]) -> tuple[list[str], list[str]]:
    """(the arguments in our words, what to tell the reader). `flags`: those of the command, as names of its fields."""
    words, ours, notes = list(arguments), list[str](), list[str]()
    while words:
        word = words.pop(0)
        if word == "--":
            return [*ours, word, *words], notes
        name, equals, value = word.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        if not word.startswith("--") or "set" not in flags or (name in flags and name != "precision"):
            ours.append(word)
            continue
        key = setting_of(name)
        if name in INSTEAD_OF_FLAG:
            raise UsageError(f"There is no --{name.replace('_', '-')} here. {INSTEAD_OF_FLAG[name]}")
        if name in ALREADY_DONE or name in SWITCHES:
            given = value if equals else words.pop(0) if words and words[0].lower() in TRUE + FALSE else "true"
            if given.lower() in FALSE:
                notes.append(f"Left out {word}.")
            elif name in ALREADY_DONE:
                notes.append(f"Left out {word}: {ALREADY_DONE[name]}")
            elif key is not None:
                ours += _in_our_words(key, SWITCHES[name][1], flags, word, notes)
        elif key is None or not (equals or words):
            ours.append(word)  # the parser has words for it
        elif name == "precision":
            ours += [word.partition("=")[0], value_of(name, key, value if equals else words.pop(0))]
        else:
            ours += _in_our_words(key, value_of(name, key, value if equals else words.pop(0)), flags, word, notes)
    return ours, notes


def _in_our_words(key: str, value: str, flags: Collection[str], word: str, notes: list[str]) -> list[str]:
    theirs = word.partition("=")[0]
    if key == "run" and "run" in flags:
        ours = ["--run", value]
    elif key == "data.source" and "data" in flags:
        notes.append(f"Read {theirs} as the argument DATA: {value}.")
        return [value]
    else:
        short = next((name for name, target in FLAGS.items() if target == key and name in flags), None)
        ours = [f"--{short.replace('_', '-')}", value] if short else ["--set", f"{key}={value}"]
    notes.append(f"Read {theirs} as {' '.join(ours)}.")
    return ours
