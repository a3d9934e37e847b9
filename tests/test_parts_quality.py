"""The examples of docs/parts-quality.md run as they stand there, and every part has one of about ten lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import safelight

PAGE = (Path(__file__).parents[1] / "docs" / "parts-quality.md").read_text(encoding="utf-8")
SECTIONS = re.findall(r"^## safelight\.(\w+)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)


@pytest.mark.parametrize(("name", "text"), SECTIONS, ids=[name for name, _ in SECTIONS])
def test_the_example_runs(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = re.search(r"^```python\n(.*?)^```", text, re.M | re.S)
    assert example is not None
    assert len([line for line in example[1].splitlines() if line.strip()]) <= 24
    monkeypatch.chdir(tmp_path)
    exec(compile(example[1], name, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out


def test_every_part_is_exported_and_listed() -> None:
    for name, _ in SECTIONS:
        assert name in safelight.__all__
        assert name in dir(safelight)
        assert callable(getattr(safelight, name))
        assert getattr(safelight, name).__doc__
