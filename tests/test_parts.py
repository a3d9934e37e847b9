"""Every part of the package stands alone, is listed and typed, and its example on the page runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import safelight

PAGE = (Path(__file__).parents[1] / "docs" / "parts.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## safelight\.(\w+)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))


def example(part: str) -> str:
    return re.findall(r"^```python\n(.*?)^```", SECTIONS[part], re.M | re.S)[0]


@pytest.mark.parametrize("part", SECTIONS)
def test_the_example_of_a_part_runs(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = example(part)
    assert f"sl.{part}(" in code
    assert len(code.split("\n\n", 2)[2].splitlines()) <= 16, "ten lines or so, below the imports"
    exec(compile(code, f"docs/parts.md, {part}", "exec"), {})


@pytest.mark.parametrize("part", SECTIONS)
def test_a_part_is_listed_and_has_a_docstring(part: str) -> None:
    assert part in dir(safelight)
    assert part in safelight.__all__
    assert getattr(safelight, part).__doc__
    assert f"[`safelight.{part}`]" in PAGE.partition("\n## ")[0]


def test_listing_the_package_imports_nothing() -> None:
    script = "import sys, safelight; assert 'EMA' in dir(safelight); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_everything_that_is_listed_exists() -> None:
    assert [name for name in safelight.__all__ if not hasattr(safelight, name)] == []
