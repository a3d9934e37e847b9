"""What an agent is told of runs, and what it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recorded_runs import make_run
from showcase import build_run

from safelight.errors import UsageError
from safelight.pages.mcp.tools import RunReader


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> RunReader:
    root = tmp_path_factory.mktemp("agents")
    build_run(root / "sound")
    make_run(root / "inner" / "sick")
    make_run(tmp_path_factory.mktemp("outside") / "secret")
    return RunReader([root])


def test_all_runs_are_listed(reader: RunReader) -> None:
    found = reader.list_runs()
    assert {run["name"] for run in found["runs"]} == {"sound", "inner/sick"}
    assert reader.list_runs("SICK")["count"] == 1


def test_one_run(reader: RunReader) -> None:
    found = reader.read_run("sound")
    assert {"verdict", "findings", "config", "signals", "state"} <= set(found)
    assert "loss/mean" in found["signals"]
    assert reader.read_run(found["id"])["name"] == "sound"
    assert {"verdict", "coverage", "findings"} <= set(reader.diagnose("inner/sick"))


def test_metrics(reader: RunReader) -> None:
    found = reader.read_metrics("inner/sick", ["loss/mean"], points=4)["loss/mean"]
    assert found["count"] == 300
    assert found["nonfinite"] == 1
    assert found["points"]["latest"]
    assert "loss/mean" in reader.read_metrics("sound", points=0)


def test_comparison(reader: RunReader) -> None:
    found = reader.compare(["sound", "inner/sick"])
    assert [run["name"] for run in found["runs"]] == ["sound", "inner/sick"]
    assert found["settings"]


def test_picture(reader: RunReader) -> None:
    content, form = reader.read_picture("sound")
    assert (content[:8], form) == (b"\x89PNG\r\n\x1a\n", "png")


def test_words(reader: RunReader) -> None:
    assert reader.explain("LRA001")["rules"][0]["cause"] == "lr.too-high"
    assert reader.explain("blurry")["symptoms"]
    assert reader.find_setting("learning rate")["settings"][0]["key"] == "optimizer.lr"


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("read_run", ["soud"], "Did you mean 'sound'?"),
        ("read_run", ["../outside0/secret"], "There is no run"),
        ("read_run", ["/etc"], "There is no run"),
        ("read_run", ["a\0b"], "There is no run"),
        ("diagnose", ["secret"], "There is no run"),
        ("read_metrics", ["sound", ["loss/men"]], "no signal"),
        ("read_metrics", ["sound", [], 10**9], "points at once"),
        ("read_picture", ["inner/sick"], "has no picture"),
        ("compare", [["sound"]], "Name 2"),
        ("explain", ["zzz"], "no finding or symptom"),
        ("find_setting", ["zzz"], "No setting"),
    ],
)
def test_refused_in_words(reader: RunReader, tool: str, arguments: list[Any], words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("?", r"\?")):
        getattr(reader, tool)(*arguments)


def test_a_folder_outside_is_not_read(reader: RunReader, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        reader.read_run(str(make_run(tmp_path / "other")))
