"""Rows are gathered within a bounded memory, and nothing that is not finite is lost."""

from __future__ import annotations

import math

import pytest

from safelight.diagnosis.logs import table as module
from safelight.diagnosis.logs.table import Table


def test_long_logs_are_thinned_and_broken_numbers_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NUMBERS", 100)
    table = Table().extend({"step": k, "loss": math.nan if k == 333 else 1.0} for k in range(1000))
    rows, _ = table.columns["loss"].arrays()
    assert len(rows) <= 100
    assert set(rows % table.apart) == {0}
    assert table.columns["loss"].broken == [333]
    assert table.rows == 1000


def test_names_without_a_meaning_are_remembered_but_not_their_numbers() -> None:
    table = Table().extend([{f"noise{k}": 1.0 for k in range(1000)} | {"loss": 1.0}])
    assert list(table.columns) == ["loss"]
    assert len(table.others) == module.MOST_NAMES


@pytest.mark.parametrize(
    ("rows", "emptied"),
    [
        ([{"step": k, "loss": "0.5" if k < 6 else "", "lr": "1"} for k in range(9)], [6, 7, 8]),
        ([{"step": k, "loss": None if k == 4 else 0.5} for k in range(9)], [4]),
        # Lightning: a row of the validation has another cell; a row of the rate has no epoch.
        ([{"step": k, "epoch": 0, "loss": 0.5} for k in range(6)] + [{"step": 6, "epoch": 0, "val_loss": 1}], []),
        ([{"step": k, "epoch": 0, "loss": 0.5} for k in range(6)] + [{"step": 6, "lr-AdamW": 1}], []),
        ([{"loss": 0.5}] * 6 + [{"loss": ""}], []),
    ],
)
def test_empty_cells_that_are_nan(rows: list[dict[str, object]], emptied: list[int]) -> None:
    assert Table().extend(rows).emptied("loss") == emptied


def test_one_row_for_each_number() -> None:
    table = Table().extend({"step": k, "metric": name, "value": 0.5} for k in range(3) for name in ("loss", "lr"))
    assert set(table.columns) == {"loss", "lr", "step of the log"}
