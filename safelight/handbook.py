"""The pages of the documentation, offline, and where else a word is known: findings, settings, pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from safelight.errors import UsageError
from safelight.words import begins_a_word, plain, stem

MAX_NAMED = 3  # settings, symptoms or pages


def elsewhere(word: str, *, besides: str) -> str:
    """Sentences that begin with a space, to be put after an error; nothing where the word is not known at all.
    `besides`: the command that was asked."""
    from safelight.config.search import search as search_settings
    from safelight.diagnosis.symptoms import find_symptoms

    settings = search_settings(word)
    keys = [setting.key for setting in settings.settings]
    found = {
        "explain": [symptom.name for symptom in find_symptoms(word)],
        "settings": keys if plain(word) else [],
        "docs": list(dict.fromkeys(page for page, _, _ in search(word))),
    }
    notes = "" if besides == "settings" else "".join(f" {note}" for note in settings.notes)
    return notes + "".join(
        f" `safelight {command} {word}` finds {', '.join(names[:MAX_NAMED])}."
        for command, names in found.items()
        if names and command != besides
    )


def pages() -> dict[str, str]:
    """Every page by its name: those that were installed, or those of the repository."""
    package = Path(__file__).parent
    for folder in (package / "docs", package.parent / "docs"):
        if (folder / "index.md").is_file():
            return {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}
    raise UsageError("The pages are not installed here. They are in the folder docs of the repository.")


def title(text: str) -> str:
    return text.partition("\n")[0].lstrip("# ")


def search(word: str) -> list[tuple[str, str, str]]:
    """(page, heading, line) of sections that have all the words: of each page the best, then the others. A section is
    better with the whole phrase in its heading, and with more of it in its text."""
    parts, phrase = [stem(part) for part in plain(word).split()], plain(word)
    ranked = []
    for page, text in pages().items():
        for heading, body in sections(text):
            said = plain(f"{heading} {body}")
            if parts and all(begins_a_word(said, part) for part in parts):
                worth = 10 * (phrase in plain(heading)) + min(said.count(phrase), 9)
                ranked.append((worth, (page, heading, _line(body, parts))))
    ordered = [place for _, place in sorted(ranked, key=lambda each: -each[0])]
    best = {place[0]: place for place in reversed(ordered)}
    return sorted(ordered, key=lambda place: place is not best[place[0]])


def sections(text: str) -> Iterator[tuple[str, str]]:
    """(heading, what stands under it)."""
    for part in re.split(r"^(?=#+ )", text, flags=re.M):
        heading, _, body = part.partition("\n")
        if part.startswith("#"):
            yield heading.lstrip("# "), body


def _line(body: str, parts: list[str]) -> str:
    """The first line with most of the words, short."""
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    best = max(lines, key=lambda line: sum(begins_a_word(plain(line), part) for part in parts), default="")
    return best if len(best) <= 110 else best[:109] + "…"
