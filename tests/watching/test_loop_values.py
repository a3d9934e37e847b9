"""Whatever is logged costs at most its own reading, and one sentence."""

from __future__ import annotations

import decimal
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import safelight
from safelight.record.reading import read_signal
from safelight.watching.loop_values import MAX_NAMES, LoggedValues


class Odd(dict[str, float]):
    def items(self) -> Any:
        raise RuntimeError("odd")


NUMBERS = [
    (torch.tensor(2.0, requires_grad=True), 2.0), (torch.tensor([[3.0]]), 3.0),
    (torch.tensor(1, dtype=torch.int8), 1.0),
    (torch.tensor(0.5, dtype=torch.bfloat16), 0.5), (np.float64(4), 4.0), (np.array([5]), 5.0), (True, 1.0), (7, 7.0),
    (decimal.Decimal("1.5"), 1.5), (math.inf, math.inf),
]  # fmt: skip
OTHERS = [None, "word", b"bytes", torch.ones(3), torch.tensor(1j), 1j, np.ones(2), [1.0], object(), 10**400,
          lambda: 1.0,
          torch.empty(0), torch.ones(1, device="meta")]  # fmt: skip


@pytest.mark.parametrize(("value", "number"), NUMBERS, ids=repr)
def test_what_is_one_number_is_kept(value: Any, number: float) -> None:
    said: list[str] = []
    assert LoggedValues(said.append).numbers({"a": value, "b": {"c": {"d": value}}}) == {"a": number, "b/c/d": number}
    assert said == []


@pytest.mark.parametrize("value", OTHERS, ids=lambda value: str(type(value)))
def test_what_is_none_costs_its_own_reading(value: Any) -> None:
    said: list[str] = []
    assert LoggedValues(said.append).numbers({"bad": value, "good": 1.0}) == {"good": 1.0}
    assert len(said) == 1


@pytest.mark.parametrize("values", [Odd(a=1.0), 5, None, [("a", 1.0)], "words"])
def test_what_is_no_mapping_costs_itself(values: Any) -> None:
    said: list[str] = []
    assert LoggedValues(said.append).numbers(values) == {}
    assert len(said) == 1


def test_names_are_short_few_and_printable() -> None:
    said: set[str] = set()
    logged = LoggedValues(said.add)
    found = logged.numbers(
        {"x" * 1_000_000: 1.0, "a\x1b\n\ud800": 2.0, 5: 3.0, **{f"n{i}": 1.0 for i in range(20_000)}}
    )
    assert found["a\\x1b\\n\\ud800"] == 2.0
    assert found["5"] == 3.0
    assert len(found) == MAX_NAMES
    assert len(said) == 2


@pytest.mark.parametrize(
    ("step", "place"), [(None, 9), (3, 3), (torch.tensor(4), 4), ("x", None), (-1, None), (2**70, None)]
)
def test_the_step_of_what_is_logged(step: Any, place: int | None) -> None:
    assert LoggedValues(lambda _: None).place(step, 9) == place


def test_the_writer_lives_through_all_of_it(tmp_path: Path) -> None:
    """A tensor that requires a gradient ended its thread: none of the losses was kept."""
    model, said = nn.Linear(2, 2), list[str]()
    watch = safelight.watch(model, run=tmp_path / "run", say=said.append)
    for step in range(3):
        watch.log(
            {
                "loss": model(torch.ones(1, 2)).mean(),
                "nan": math.nan,
                **{f"other {i}": each for i, each in enumerate(OTHERS)},
            }
        )
        watch.log({"late": 1.0}, step=step)
        watch.log("words")  # type: ignore[arg-type]
    watch.close()
    assert [len(read_signal(tmp_path / "run" / "record.sqlite", name)) for name in ("loss", "nan", "late")] == [3, 3, 3]
    assert len(said) == len(set(said))
