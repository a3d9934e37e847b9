"""The files of the pages: imports lead somewhere, no markup is made of strings, nothing comes from elsewhere."""

from __future__ import annotations

import re
import shutil
from pathlib import Path, PurePosixPath

import pytest

from safelight.pages.data.bundle import STATIC
from safelight.pages.server import run_cache as run_cache
from safelight.pages.server import statics

SCRIPTS = sorted(STATIC.rglob("*.js"))
FORBIDDEN = (
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "eval(",
    "new Function",
    'setAttribute("style"',
)


def by_name(path: Path) -> str:
    return path.relative_to(STATIC).as_posix()


def faults(source: str) -> list[str]:
    """What a strict policy would forbid, or what could turn a name into markup."""
    outside = re.findall(r"""["'`](?:https?:)?//(?!www\.w3\.org/2000/svg)[^"'`]*""", source)
    return [word for word in FORBIDDEN if word in source] + outside


@pytest.mark.parametrize("line", ["a.innerHTML = b;", 'fetch("https://example.org/x.js")', "eval(text)"])
def test_a_fault_is_found(line: str) -> None:
    assert faults(line)


@pytest.mark.parametrize("path", SCRIPTS, ids=by_name)
def test_a_script_is_safe_small_and_begins_with_what_it_owns(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert faults(source) == []
    assert source.startswith("/**\n * ")
    assert source.count("\n") < 300


@pytest.mark.parametrize("path", SCRIPTS, ids=by_name)
def test_every_import_leads_to_a_file_that_exports_the_name(path: Path) -> None:
    for names, address in re.findall(r'^import \{([^}]*)\} from "([^"]+)";', path.read_text(encoding="utf-8"), re.M):
        target = (path.parent / PurePosixPath(address)).resolve()
        assert target.is_file(), address
        exported = re.findall(
            r"^export (?:async )?(?:function|class|const) (\w+)", target.read_text(encoding="utf-8"), re.M
        )
        assert {name.split(" as ")[0].strip() for name in names.split(",") if name.strip()} <= set(exported)


def test_the_page_has_no_script_and_no_style_of_its_own() -> None:
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert "style=" not in page
    assert re.findall(r"<script(?![^>]*src=)", page) == []
    assert re.findall(r"""(?:src|href)="(?!/static/|#)[^"]*""", page) == []


def test_no_style_asks_for_anything() -> None:
    for path in STATIC.rglob("*.css"):
        assert not re.search(r"url\(|@import", path.read_text(encoding="utf-8")), path


def test_an_edition_changes_with_any_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(statics.STATIC, tmp_path / "static")
    monkeypatch.setattr(statics, "STATIC", tmp_path / "static")
    name_it = statics.edition.__wrapped__
    before = name_it()
    assert name_it() == before
    (tmp_path / "static" / "words.js").write_text("// other words")
    assert name_it() != before
