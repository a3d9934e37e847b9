"""A record in memory gives every reading as a series of the steps that have it."""

from __future__ import annotations

from safelight.observing.memory_record import MemoryRecord


def test_readings_are_joined_by_step_and_given_by_name() -> None:
    record = MemoryRecord()
    record.add(1, {"a": 1.0})
    record.add(0, {"a": 0.0, "b": 5.0})
    record.add(1, {"b": 6.0, "c": 7.0})
    assert record.series() == {"a": ([0, 1], [0.0, 1.0]), "b": ([0, 1], [5.0, 6.0]), "c": ([1], [7.0])}
