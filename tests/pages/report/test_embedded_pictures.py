"""Pictures of a report: evenly chosen, within their budget, a broken one left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from safelight.pages.report.embedded_pictures import choose, embed


def stages(count: int, kind: str = "samples") -> list[dict[str, Any]]:
    return [{"id": f"{kind}{step}", "kind": kind, "step": step} for step in range(count)]


@pytest.mark.parametrize("count", [1, 2, 50, 51, 1000])
def test_stages_are_chosen_evenly_with_both_ends(count: int) -> None:
    chosen = [each["step"] for each in choose(stages(count))]
    assert len(chosen) == len(set(chosen)) == min(count, 50)
    assert (chosen[0], chosen[-1]) == (0, count - 1)
    assert max(np.diff(chosen), default=1) <= count / 49 + 1


@pytest.mark.parametrize("budget", [5_000_000, 400_000, 30_000])
def test_pictures_keep_to_the_budget_and_some_are_left(tmp_path: Path, budget: int) -> None:
    files = {}
    for each in stages(30):
        files[each["id"]] = tmp_path / f"{each['id']}.png"
        noise = np.random.default_rng(each["step"]).integers(0, 255, (300, 400, 3), np.uint8)
        Image.fromarray(noise).save(files[each["id"]])
    found = embed(stages(30), files, budget)
    assert 0 < sum(map(len, found.values())) <= budget
    assert all(address.startswith("data:image/") for address in found.values())


def test_a_broken_picture_costs_itself(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG nothing")
    Image.new("RGB", (8, 8)).save(tmp_path / "b.png")
    pictures = [{"id": "a", "kind": "samples", "step": 0}, {"id": "b", "kind": "samples", "step": 1}]
    assert list(embed(pictures, {"a": tmp_path / "a.png", "b": tmp_path / "b.png"}, 10_000)) == ["b"]
