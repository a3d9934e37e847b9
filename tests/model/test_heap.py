"""The heap of the C library: what it holds, its holes, and what a step leaves to the next."""

from __future__ import annotations

import sys

import psutil
import pytest

from safelight.model.heap import settled_peak

MB = 10**6

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux: it measures glibc")


def test_the_heap_holds_what_is_taken() -> None:
    blocks = [(number, 50 * MB) for number in range(1, 5)]
    held = settled_peak([], [*blocks, *((number, 0) for number, _ in blocks)])
    assert held == pytest.approx(200 * MB, rel=0.01)


def test_holes_in_the_heap_are_counted() -> None:
    """Every other block is given back, and then one is wanted that fits into none of the holes."""
    small = [(number, MB) for number in range(1, 101)]
    every_other = [(number, 0) for number, _ in small[::2]]
    large = [(number, 2 * MB) for number in range(201, 226)]
    end = [(number, 0) for number, _ in [*small[1::2], *large]]
    held = settled_peak([], [*small, *every_other, *large, *end])
    assert held is not None
    assert held > 140 * MB  # at no time more than 100 MB are in use


def test_what_a_step_leaves_to_the_next_is_no_leak() -> None:
    before, step = [(1, 40 * MB)], [(2, 40 * MB), (1, 0)]
    assert settled_peak(before, step) == pytest.approx(80 * MB, rel=0.05)


def test_more_than_the_machine_has_can_be_asked_for() -> None:
    huge = psutil.virtual_memory().total * 100
    assert settled_peak([], [(1, huge), (1, 0)]) == pytest.approx(huge, rel=0.01)
