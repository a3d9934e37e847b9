"""Where else a word is known: `explain`, `settings` and `docs` send a reader to one another."""

from __future__ import annotations

from safelight.words import plain

MAX_NAMED = 3  # settings, symptoms or pages


def elsewhere(word: str, *, besides: str) -> str:
    """Sentences that begin with a space, to be put after an error; nothing where the word is not known at all.
    `besides`: the command that was asked."""
    from safelight.cli.docs import search as search_pages
    from safelight.config.search import search as search_settings
    from safelight.diagnosis.symptoms import find_symptoms

    settings = search_settings(word)
    keys = [setting.key for setting in settings.settings]
    found = {
        "explain": [symptom.name for symptom in find_symptoms(word)],
        "settings": keys if plain(word) else [],
        "docs": list(dict.fromkeys(page for page, _, _ in search_pages(word))),
    }
    notes = "" if besides == "settings" else "".join(f" {note}" for note in settings.notes)
    return notes + "".join(
        f" `safelight {command} {word}` finds {', '.join(names[:MAX_NAMED])}."
        for command, names in found.items()
        if names and command != besides
    )
