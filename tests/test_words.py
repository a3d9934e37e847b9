"""Sizes, numbers and names in words."""

from __future__ import annotations

import math

import pytest

from safelight.words import (
    first_line,
    in_bytes,
    megabytes,
    print_to_stderr,
    printable,
    round_number,
    round_rate,
    with_error,
)


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1_536_000, "1.54 MB"), (2e9, "2 GB"), (3.5e12, "3.5 TB")],
)  # fmt: skip
def test_sizes(count: float, words: str) -> None:
    assert in_bytes(count) == words


def test_megabytes_have_one_digit() -> None:
    assert megabytes(1_234_567_890) == "1,234.6 MB"


@pytest.mark.parametrize(
    ("name", "words"), [("a.png", "a.png"), ("ä 1.png", "ä 1.png"), ("bad\udcff.png", "bad\\udcff.png")]
)
def test_names_that_are_no_text_can_be_printed(name: str, words: str) -> None:
    assert printable(name) == words


@pytest.mark.parametrize(
    ("number", "rounded"),
    [
        (0.010000000474974513, 0.01), (0.0039, 0.0039), (1.2345678, 1.235), (16777217.0, 16777217.0), (-0.25, -0.25),
        (0.0, 0.0), (3, 3), (math.inf, math.inf), (5.065394e-08, 5.065e-08),
    ],
)  # fmt: skip
def test_numbers_are_rounded_as_a_person_writes_them(number: float, rounded: float) -> None:
    assert round_number(number) == rounded


def test_what_is_not_a_number_stays_so() -> None:
    assert math.isnan(round_number(math.nan))


@pytest.mark.parametrize(("rate", "rounded"), [(0.0039, 0.004), (0.96, 1.0), (12.0, 10.0), (1e-6, 1e-6)])
def test_a_rate_has_one_digit(rate: float, rounded: float) -> None:
    assert round_rate(rate) == rounded


@pytest.mark.parametrize(
    ("number", "error", "text"),
    [
        (0.2412, 0.1042, "0.24 ± 0.10"), (0.1537, 0.37, "0.2 ± 0.4"), (31.4, 2.1, "31 ± 2"), (12.3456, 10.0, "12 ± 10"),
        (123456.0, 2345.0, "123456 ± 2345"), (0.0, 0.00012, "0.00000 ± 0.00012"), (0.0, 0.0, "0"),
        (0.12345, math.nan, "0.123"), (0.12345, math.inf, "0.123"),
    ],
)  # fmt: skip
def test_as_many_digits_as_the_error_allows(number: float, error: float, text: str) -> None:
    assert with_error(number, error) == text


@pytest.mark.parametrize(("said", "words"), [("\none\ntwo", "one"), ("", ""), (" \n ", ""), ("x" * 300, "x" * 200)])
def test_the_first_line_of_an_error(said: str, words: str) -> None:
    assert first_line(ValueError(said)) == words


def test_words_for_a_person_leave_stdout_to_data(capsys: pytest.CaptureFixture[str]) -> None:
    print_to_stderr("Saved.")
    assert capsys.readouterr() == ("", "Saved.\n")
