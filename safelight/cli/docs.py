"""safelight docs"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from safelight.cli.flags import options
from safelight.errors import UsageError
from safelight.words import begins_a_word, plain, stem

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
            from safelight.cli.elsewhere import elsewhere

            near = elsewhere(word, besides="docs")
            raise UsageError(f"No page of the documentation says {word!r}.{near} `safelight docs` lists the pages.")
        elif self.json:
            print(json.dumps({"places": [{"page": page, "heading": head} for page, head, _ in places]}, indent=1))
        else:
            for page, heading, line in places[:MAX_PRINTED_PLACES]:
                print(f"{page}: {heading}\n    {line}")
            print(f"\nRead a page: safelight docs {places[0][0]}")


def pages() -> dict[str, str]:
    """Every page by its name: those that were installed, or those of the repository."""
    package = Path(__file__).parents[1]
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
