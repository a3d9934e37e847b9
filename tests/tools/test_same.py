"""The proof that a refactoring changes no byte can fail: it sees one broken line, and nothing where nothing is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import same


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One case, trained by the package as it is and by the package with one line of the update broken."""
    top = tmp_path_factory.mktemp("same")
    update = next(control for control in same.CONTROLS if control.name == "update")
    same.train_both(same.broken_copy(update, top / "broken"), same.ROOT, top, ["plain", "plain-killed"])
    return top


def test_a_broken_update_is_seen(trained: Path) -> None:
    count, found = same.compare(trained / "ours", trained / "base", "plain")
    assert count > 100
    assert "run/checkpoints/step_00000012/model.safetensors" in found
    assert "reading loss/mean" in found


def test_the_same_code_gives_the_same(trained: Path) -> None:
    """A kill and a resume end with the bytes of the run that was left alone, so nothing of time is compared."""
    whole, killed = (same.contents(trained / "base" / name) for name in ("plain", "plain-killed"))
    found = same.differences(whole, killed)
    assert [name for name in found if name.startswith(("run/", "reading"))] == []


@pytest.mark.parametrize("control", same.CONTROLS, ids=lambda control: control.name)
def test_every_control_still_finds_its_line(control: same.Control, tmp_path: Path) -> None:
    broken = same.broken_copy(control, tmp_path)
    assert (broken / control.file).read_text() != (same.ROOT / control.file).read_text()


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, ["a"]),
        ({"a": 1, "b": 1}, {"a": 1}, ["b is new"]),
        ({}, {"b": 1}, ["b is only in the base"]),
        ({"a": same.plain([float("nan")])}, {"a": same.plain([float("nan")])}, []),
        ({"a": same.plain({"reason": "x", "step": 1})}, {"a": same.plain({"reason": "y", "step": 1})}, []),
        ({"a": same.plain({"reason": "x", "step": 1})}, {"a": same.plain({"reason": "x", "step": 2})}, ["a"]),
    ],
)
def test_differences(ours: dict[str, object], theirs: dict[str, object], found: list[str]) -> None:
    assert same.differences(ours, theirs) == found
