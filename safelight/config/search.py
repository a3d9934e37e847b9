"""Finds settings by the words that the field uses for them."""

from __future__ import annotations

from dataclasses import dataclass

from safelight.config.aliases import ALREADY_DONE, INSTEAD_OF_FLAG, setting_of
from safelight.config.phrases import WORDS, about
from safelight.config.reference import Setting, settings
from safelight.words import begins_a_word, plain, stem


@dataclass(frozen=True, slots=True)
class SearchResult:
    settings: list[Setting]
    notes: list[str]
    """About words that no setting is needed for."""


def search(word: str) -> SearchResult:
    """Settings that a word is about, the most important first; all of them for an empty one."""
    by_key = {setting.key: setting for setting in settings()}
    wanted = plain(word.removeprefix("--"))
    name = wanted.replace(" ", "_")
    notes = [text for text in (ALREADY_DONE.get(name) or INSTEAD_OF_FLAG.get(name) or _note(wanted),) if text]
    keys = dict.fromkeys([*_by_name(word, wanted, by_key), *about(wanted)])
    alias = setting_of(name)
    if alias in by_key:
        keys[alias] = None
    if not keys and not notes:
        keys = dict.fromkeys(_by_text(wanted, by_key))
    return SearchResult([by_key[key] for key in keys], notes)


def _note(wanted: str) -> str | None:
    about = {"flash attention": "sdpa", "memory efficient attention": "sdpa", "pinned memory": "pin_memory"}
    return ALREADY_DONE.get(about.get(wanted, ""))


def _by_name(word: str, wanted: str, by_key: dict[str, Setting]) -> list[str]:
    """By the key, its section or its last part."""
    name = wanted.replace(" ", "_")
    return [
        key for key in by_key if not wanted or word == key or name in (key.partition(".")[0], key.partition(".")[2])
    ]


def _by_text(wanted: str, by_key: dict[str, Setting]) -> list[str]:
    """All words of it stand in the key or the help, or in one of our phrases."""
    parts = [stem(part) for part in wanted.split()]
    texts = {key: plain(f"{key.replace('.', ' ')} {setting.help}") for key, setting in by_key.items()}
    found = [key for key, text in texts.items() if parts and all(begins_a_word(text, part) for part in parts)]
    in_phrases = [
        key
        for phrases, keys in WORDS.items()
        if parts and all(begins_a_word(phrases.replace("|", " "), part) for part in parts)
        for key in keys.split()
    ]
    return in_phrases + found
