"""CSV as people and tools write it."""

from __future__ import annotations

from pathlib import Path

import pytest

from safelight.diagnosis.logs.cells import STEP, number_of
from safelight.diagnosis.logs.delimited import is_delimited, rows


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("step,loss\n1,0.5\n2,0.4\n", {"step": 1, "loss": 0.5}),
        ("step;loss\n1;0,5\n2;0,4\n", {"step": 1, "loss": 0.5}),
        ("step\tloss\n1\t0.5\n", {"step": 1, "loss": 0.5}),
        ("# made by hand\n\n step , loss \n1, 0.5\n", {"step": 1, "loss": 0.5}),
        ("0.5\n0.4\n", {"loss": 0.5}),
        ("1,0.5\n2,0.4\n", {STEP: 1, "loss": 0.5}),
        ("Wall time,Step,Value\n1700000000.1,1,0.5\n", {"wall time": 1700000000.1, "step": 1, "loss": 0.5}),
        (",iteration,loss\n0,1,0.5\n", {"": 0, "iteration": 1, "loss": 0.5}),
    ],
)
def test_tables(tmp_path: Path, text: str, first: dict[str, float]) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text(text)
    assert {name: number_of(cell) for name, cell in next(iter(rows(path))).items()} == first


def test_a_header_again_and_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text('step,loss\n1,0.5\nstep,loss\n2,0.4\n3,"0.')
    assert [row.get("step") for row in rows(path)][:2] == ["1", "2"]


@pytest.mark.parametrize(
    ("text", "is_table"),
    [
        ("step,loss\n1,2\n", True),
        ("step 1 loss 2\nstep 2 loss 3\n", False),
        ("0.5\n0.4\n0.3\n", True),
        ("hello\n", False),
    ],
)
def test_tables_without_a_name(tmp_path: Path, text: str, is_table: bool) -> None:
    path = tmp_path / "log"
    path.write_text(text)
    assert is_delimited(path) == is_table
