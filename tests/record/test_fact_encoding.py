"""Facts are JSON that any tool reads."""

from __future__ import annotations

import json
import math
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from records import record

from safelight.record.fact_encoding import encode, is_storable, to_json


def test_facts_are_json_that_any_tool_reads(tmp_path: Path) -> None:
    path = tmp_path / "record.sqlite"
    kept = record(path)
    kept.event(1, "note", text="ünï\ud800", number=1.5, list_=[1, 2], none=None)
    kept.close()
    with sqlite3.connect(path) as database:
        [(facts,)] = database.execute("SELECT facts FROM event").fetchall()
    database.close()
    assert json.loads(facts)["number"] == 1.5


@pytest.mark.parametrize(
    ("facts", "read"),
    [
        ({"a": 1.5, "b": None}, {"a": 1.5, "b": None}),
        ({"a": math.nan, "b": [-math.inf, 2]}, {"a": "NaN", "b": ["-Infinity", 2]}),
        ({"path": Path("x")}, {"path": "x"}),
        ({(1, 2): 3, "n": math.nan}, {"(1, 2)": 3, "n": "NaN"}),
    ],
)
def test_what_json_cannot_express_becomes_text(facts: dict[Any, Any], read: dict[str, Any]) -> None:
    assert json.loads(encode(facts)) == read


def test_what_holds_itself_becomes_text() -> None:
    facts: dict[str, Any] = {}
    facts["self"] = facts
    assert json.loads(encode(facts)) == {"text": "{'self': {...}}"}


class Wordless:
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


def test_what_has_no_words_is_named_by_its_type() -> None:
    assert json.loads(encode({"a": Wordless(), "b": 1})) == {"a": "a Wordless without words", "b": 1}
    assert json.loads(encode({Wordless(): 1})) == {"text": "a dict without words"}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("value", "is_taken"),
    [
        (1, True),
        (2**63, False),
        (-(2**63), True),
        (1.5, True),
        ("ü", True),
        ("\ud800", False),
        (None, True),
        ([], False),
    ],
)
def test_what_sqlite_takes(value: Any, is_taken: bool) -> None:
    assert is_storable(value) is is_taken


def test_what_is_not_finite_is_null_for_every_reader() -> None:
    found = to_json({"a": [1.5, math.nan, {"b": -math.inf}], "c": "ü"})
    assert json.loads(found, parse_constant=pytest.fail) == {"a": [1.5, None, {"b": None}], "c": "ü"}
    assert to_json([1, 2]) == "[1,2]"
