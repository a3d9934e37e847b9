"""Turns, spreads and tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench import measure
from bench.measure import HOST, Alternation, Enough, ratios, spread, turns, write_table


@dataclass(frozen=True)
class Shown:
    step: int


def test_turns_are_turned_round_every_other_round() -> None:
    assert list(turns(["a", "b", "c"], 3)) == ["c", "b", "a", "a", "b", "c", "c", "b", "a"]


class Run:
    """Shows its steps, as a trainer does."""

    def __init__(self) -> None:
        self.step = 0

    def train(self, alternation: Alternation) -> None:
        for self.step in range(1, 99):
            alternation.show(Shown(self.step))  # type: ignore[arg-type]


def test_the_host_pauses_for_its_guests() -> None:
    run, called = Run(), list[int]()
    alternation = Alternation({"guest": lambda: called.append(run.step)}, block=3, rounds=4)
    with pytest.raises(Enough):
        run.train(alternation)
    # To warm up and in round 0; at the end of round 1 and the begin of round 2; at the end of round 3.
    assert called == [3, 3, 9, 9, 15]
    assert {name: len(seconds) for name, seconds in alternation.seconds.items()} == {HOST: 4, "guest": 4}


def test_a_guest_is_not_on_the_bill_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that stands still but for what guests and steps take."""
    run, guests = Run(), list[int]()
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: 100 * len(guests) + run.step))
    alternation = Alternation({"slow": lambda: guests.append(run.step)}, block=3, rounds=2)
    with pytest.raises(Enough):
        run.train(alternation)
    assert alternation.seconds == {"slow": [100, 100], HOST: [3, 3]}


@pytest.mark.parametrize(
    ("values", "median", "low", "high"),
    [([5.0], 5, 5, 5), ([1.0, 3.0], 2, 1.5, 2.5), ([1.0, 2.0, 3.0, 4.0, 50.0], 3, 2, 4)],
)
def test_spread(values: list[float], median: float, low: float, high: float) -> None:
    found = spread(values)
    assert (found.median, found.low, found.high) == (median, low, high)


def test_a_ratio_below_one_is_slower() -> None:
    assert ratios([2.0, 2.0], [1.0, 1.0]).median == 0.5


def test_a_table_says_how_it_came_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "RESULTS", tmp_path)
    monkeypatch.setattr("sys.argv", ["/somewhere/bench/overhead.py", "--rounds", "3", "--peers", "/home/me/peers"])
    text = write_table("name", "Title", ["a", "b"], [[1, 2]], ["a note"]).read_text()
    assert "python -m bench.overhead --rounds 3 --peers peers" in text
    assert "| a | b |\n| --- | --- |\n| 1 | 2 |" in text
    assert "torch" in text
    assert "/home" not in text
