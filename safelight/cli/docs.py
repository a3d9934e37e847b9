"""safelight docs"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from safelight.cli.flags import options
from safelight.errors import UsageError
from safelight.handbook import elsewhere, pages, search, title
from safelight.words import plain

MAX_PRINTED_PLACES = 12  # places that are printed of a search


@dataclass(frozen=True, kw_only=True)
class Command:
    """Print a page of the documentation, or the places where a word stands; offline."""

    word: Annotated[tuple[str, ...], Positional, arg(metavar="[PAGE|WORD]", help_behavior_hint="")] = ()
    """A page such as quickstart, or words to look for; without one, all pages are listed."""
    json: options.Json = False

    def run_command(self) -> None:
        found, word = pages(), " ".join(self.word)
        if not word:
            listed = {name: title(text) for name, text in found.items()}
            width = max(map(len, listed))
            lines = "\n".join(f"{name:<{width}}  {about}" for name, about in listed.items())
            print(json.dumps({"pages": listed}, indent=1) if self.json else lines)
        elif (name := plain(word.removesuffix(".md")).replace(" ", "-")) in found:
            print(json.dumps({"page": name, "text": found[name]}) if self.json else found[name])
        elif not (places := search(word)):
            near = elsewhere(word, besides="docs")
            raise UsageError(f"No page of the documentation says {word!r}.{near} `safelight docs` lists the pages.")
        elif self.json:
            print(json.dumps({"places": [{"page": page, "heading": head} for page, head, _ in places]}, indent=1))
        else:
            for page, heading, line in places[:MAX_PRINTED_PLACES]:
                print(f"{page}: {heading}\n    {line}")
            print(f"\nRead a page: safelight docs {places[0][0]}")
