"""Builds the documentation as a site with search, from the same pages that travel with the package.

    python -m tools.site             # into site/; fails at the first link or anchor that leads nowhere
    python -m tools.site --serve     # at http://127.0.0.1:8000/, for writing

What pages link to outside of docs/ (examples, tables of measurements) becomes a page, too. Needs mkdocs-material.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[1]
LINK = re.compile(r"(?<=\]\()(?!https?://|#|mailto:)([^)\s#]+)(#[^)\s]*)?(?=\))")
WHOLE_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#|mailto:)([^)\s#]+)(#[^)\s]*)?\)")
MORE = "more"  # folder of the site for pages from outside of docs/
HOME = "index.md"
# As GitHub makes anchors of headings, which the pages are written for.
SLUGS = """- toc:
    permalink: true
    slugify: !!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}
"""


def collect(source: Path, out: Path) -> list[str]:
    """Copies the pages and what they link to; returns links that lead nowhere."""
    shutil.copytree(source / "docs", out, ignore=shutil.ignore_patterns("__pycache__"))
    lost, outside = list[str](), dict[Path, Path]()  # of the repository -> of the site
    for page in sorted(out.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for name, _ in LINK.findall(text):
            place = (source / "docs" / name).resolve()
            if not place.exists():
                lost.append(f"{page.name}: {name}")
            elif not place.is_relative_to((source / "docs").resolve()):
                outside[place] = _page_for(place, source)
        page.write_text(_redirected(text, source / "docs", page.parent, out, outside), encoding="utf-8")
    for place, target in outside.items():
        (out / target).parent.mkdir(parents=True, exist_ok=True)
        text = _redirected(_content(place, source), place.parent, (out / target).parent, out, outside, lonely=True)
        (out / target).write_text(text, encoding="utf-8")
    return lost


def _page_for(place: Path, source: Path) -> Path:
    name = place.relative_to(source.resolve())
    return Path(MORE) / (name if name.suffix == ".md" else name.with_name(f"{name.name}.md"))


def _content(place: Path, source: Path) -> str:
    if place.is_dir():
        names = "\n".join(f"- {path.name}" for path in sorted(place.glob("*.py")))
        return f"# {place.relative_to(source.resolve())}\n\n{names}\n"
    text = place.read_text(encoding="utf-8")
    if place.suffix == ".md":
        return text
    return f"# {place.relative_to(source.resolve())}\n\n```python\n{text}```\n"


def _redirected(
    text: str, there: Path, here: Path, out: Path, outside: dict[Path, Path], *, lonely: bool = False
) -> str:
    """Links as they are from `here` in the site, of a text that stood in `there`. `lonely`: those to pages that are not
    in the site become words."""

    def redirect(found: re.Match[str]) -> str:
        mark, words, name, anchor = found.groups()
        place = (there / name).resolve()
        target = outside.get(place)
        if target is not None:
            return f"{mark}[{words}]({os.path.relpath(out / target, here)}{anchor or ''})"
        if not lonely:
            return found[0]
        inside = (REPOSITORY / "docs").resolve()
        if place.is_relative_to(inside):
            return f"{mark}[{words}]({os.path.relpath(out / place.relative_to(inside), here)}{anchor or ''})"
        return words

    return WHOLE_LINK.sub(redirect, text)


def navigation(index: str) -> list[Any]:
    """The sections of the index, and the pages that each lists."""
    found: list[Any] = [{"Home": HOME}]
    for section in re.split(r"^## ", index, flags=re.M)[1:]:
        title, _, body = section.partition("\n")
        pages = [{words: name} for words, name in re.findall(r"^\| \[([^\]]+)\]\(([\w-]+\.md)\)", body, flags=re.M)]
        found += [{title.strip(): pages}] if pages else []
    return found


def settings(out: Path) -> str:
    """For mkdocs. Nothing is fetched by a reader's browser."""
    found = {
        "site_name": "Safelight",
        "site_description": "Train diffusion models, and learn early what is wrong with the training.",
        "docs_dir": str(out),
        "theme": {
            "name": "material",
            "font": False,
            "features": ["navigation.sections", "navigation.top", "content.code.copy", "search.suggest"],
            "palette": [
                {"media": f"(prefers-color-scheme: {name})", "scheme": scheme, "primary": "black"}
                for name, scheme in (("dark", "slate"), ("light", "default"))
            ],
        },
        "plugins": ["search"],
        "markdown_extensions": ["tables", "attr_list", "pymdownx.superfences", "pymdownx.highlight"],
        "validation": {"links": {"anchors": "warn"}, "nav": {"omitted_files": "ignore"}},
        "nav": navigation((out / HOME).read_text(encoding="utf-8")),
    }  # fmt: skip
    text = yaml.safe_dump(found, sort_keys=False, allow_unicode=True)
    return text.replace("markdown_extensions:\n", f"markdown_extensions:\n{SLUGS}", 1)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", help="serve it for writing, instead of building it")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as temporary:
        pages, config = Path(temporary) / "pages", Path(temporary) / "mkdocs.yml"
        if lost := collect(REPOSITORY, pages):
            print("Links that lead nowhere:", *lost, sep="\n  ", file=sys.stderr)
            return 1
        config.write_text(settings(pages), encoding="utf-8")
        how = ["serve"] if given.serve else ["build", "--strict", "--clean", "-d", str(REPOSITORY / "site")]
        return subprocess.run([sys.executable, "-m", "mkdocs", *how, "-f", str(config)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
