"""The pages of the site: what they link to outside of docs/ comes along, and a lost link is seen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.site import HOME, REPOSITORY, WHOLE_LINK, collect, navigation


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "pages"
    assert collect(REPOSITORY, out) == []
    return out


def test_every_link_of_every_page_leads_to_a_page_of_the_site(pages: Path) -> None:
    count = 0
    for page in pages.rglob("*.md"):
        text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.S)
        for _, _, name, _ in WHOLE_LINK.findall(text):
            place = (page.parent / name).resolve()
            assert place.exists(), f"{page.relative_to(pages)} links to {name}"
            assert place.is_relative_to(pages.resolve()), f"{page.name} links out of the site, to {name}"
            count += 1
    assert count > 200


def test_every_page_can_be_found_from_the_sections(pages: Path) -> None:
    index = (pages / HOME).read_text(encoding="utf-8")
    listed = {
        name for section in navigation(index)[1:] for each in next(iter(section.values())) for name in each.values()
    }
    assert listed == {page.name for page in pages.glob("*.md")} - {HOME}


def test_examples_come_along_as_pages(pages: Path) -> None:
    text = (pages / "more" / "examples" / "own_loop.py.md").read_text(encoding="utf-8")
    assert "```python\n" in text
    assert "sl.watch(" in text


def test_a_lost_link_is_named(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / HOME).write_text("# Home\n\n[a](gone.md), [b](https://example.org/), [c](#home)\n")
    assert collect(tmp_path, tmp_path / "out") == [f"{HOME}: gone.md"]
