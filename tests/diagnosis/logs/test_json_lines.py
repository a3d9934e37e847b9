"""JSON lines, and documents that hold a list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from safelight.diagnosis.logs.json_lines import document_rows, is_lines, rows
from safelight.errors import UsageError

ENTRIES = [{"step": 1, "loss": 0.5}, {"step": 2, "loss": float("nan")}, {"step": 3, "eval_loss": 0.4}]


def test_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "train": {"loss": 0.5}}\n\n[1]\n{"step": 2, "loss": Infinity}\n{"step": 3, "lo')
    assert list(rows(path)) == [{"step": 1, "train/loss": 0.5}, {"step": 2, "loss": float("inf")}]
    assert is_lines(path)


@pytest.mark.parametrize(
    ("document", "count"),
    [
        ({"best_metric": None, "log_history": ENTRIES, "x": [1, 2]}, 3),
        (ENTRIES, 3),
        ({"history": {"loss": [1.0, 0.5], "lr": [1, 1], "other": [3]}}, 2),
        ([0.5, 0.4, 0.3], 3),
    ],
)
def test_documents(tmp_path: Path, document: Any, count: int) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps(document, indent=2))
    found = list(document_rows(path))
    assert len(found) == count
    assert any("loss" in row for row in found)


@pytest.mark.parametrize("text", ["{", "[" * 100_000])
def test_what_is_not_json_ends_in_words(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="is not JSON"):
        list(document_rows(path))
