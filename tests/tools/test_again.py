"""The table of repeated runs says which tests ever failed, and a run that fails is seen."""

from __future__ import annotations

from tools.again import Outcome, rounds, run_pair, run_suite, table


def test_the_table_names_what_ever_failed() -> None:
    well = Outcome(1, True, 100.0, 180.0, 50, 1, (), 0)
    ill = Outcome(2, False, 200.0, 190.0, 49, 1, ("tests.a::test_b",), 1)
    text = table([well, ill, ill], "abc")
    assert "**2 of 3 runs failed.**" in text
    assert "- `tests.a::test_b`: seeds 2, 2" in text
    assert "| 2 | 2 | another run | 200 | 0.95 | 49 | 1 | 1 |" in text
    assert "Nothing." in table([well], "abc")


def test_a_suite_that_fails_is_seen() -> None:
    """Its own tests, of which one is asked for that does not exist."""
    assert run_suite(1, ["-n", "0", "tests/tools/test_again.py::test_none"]).code != 0
    found = run_suite(1, ["-n", "0", "tests/tools/test_again.py::test_the_table_names_what_ever_failed"])
    assert (found.code, found.passed, found.failed) == (0, 1, ())


def test_of_ten_runs_six_share_the_machine() -> None:
    assert list(rounds(10, 1)) == [[1], [2, 3], [4], [5, 6], [7], [8, 9], [10]]
    assert list(rounds(2, 1)) == [[1], [2]]


def test_two_run_at_once() -> None:
    name = "tests/tools/test_again.py::test_of_ten_runs_six_share_the_machine"
    assert [(each.seed, each.is_alone, each.passed) for each in run_pair([1, 2], ["-n", "0", name])] == [
        (1, False, 1), (2, False, 1),
    ]  # fmt: skip
