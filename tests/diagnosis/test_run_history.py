"""What a rule is given: series, episodes, the numbers of other readings at the same steps, evidence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from histories import checks

from safelight.checks import ProbeReading
from safelight.config import Config
from safelight.config.resolve import resolve
from safelight.diagnosis.run_history import Episode, InMemoryReadings, RunHistory, episode_of, running_median

SOME, NONE = ProbeReading("some/thing", "Something."), ProbeReading("no/thing", "Nothing.")
RUN = RunHistory(InMemoryReadings(checks(some__thing=([4, 8, 12], [1, 2, 3]))))


def test_readings_in_memory_are_read_like_a_record() -> None:
    in_memory = InMemoryReadings({"b": ([1, 2], [3, 4]), "a": ([], [])}, [(5, "data", {"x": 1}), (6, "stopped", {})])
    assert in_memory.signals() == ["a", "b"]
    steps, numbers = in_memory.raw("b")
    assert (steps.tolist(), numbers.tolist()) == ([1, 2], [3, 4])
    assert (steps.dtype, numbers.dtype) == (np.int64, np.float32)
    assert [len(each) for each in in_memory.raw("unknown")] == [0, 0]
    assert [note.name for note in in_memory.events()] == ["data", "stopped"]
    assert [(note.step, note.facts) for note in in_memory.events("data")] == [(5, {"x": 1})]


@pytest.mark.parametrize(
    ("hits", "least", "episode"),
    [
        ("", 1, None),
        ("....", 1, None),
        (".##.", 1, (1, 2, 2, 3)),
        (".##.", 3, None),
        ("..##", 2, (2, 3, 2, None)),
        ("##..#", 1, (4, 4, 1, None)),
        ("##..#", 2, (0, 1, 2, 2)),
        ("####", 4, (0, 3, 4, None)),
    ],
)
def test_episodes(hits: str, least: int, episode: tuple[int, int, int, int | None] | None) -> None:
    found = episode_of(np.arange(len(hits)), np.array([each == "#" for each in hits], dtype=bool), least)
    assert (None if found is None else (found.first, found.last, found.looks, found.ended_at)) == episode


def test_the_last_number_and_evidence() -> None:
    assert (RUN.latest(SOME), RUN.latest_step(SOME)) == (3.0, 12)
    assert (RUN.latest(NONE, 7.0), RUN.latest_step(NONE)) == (7.0, 0)
    assert np.isnan(RUN.latest(NONE))
    at = RUN.evidence(SOME, "1", step=8)
    assert (at.signal, at.value, at.steps, at.healthy_range) == ("check/some/thing", 2.0, (8, 8), "1")
    assert RUN.evidence(SOME, step=99).value == 3.0
    some, none = RUN.evidence_of({SOME: None, NONE: "0"}, 4)
    assert (some.value, none.healthy_range, none.steps) == (1.0, "0", None)
    assert math.isnan(none.value)


def test_numbers_at_steps_and_during_an_episode() -> None:
    assert RUN.at(SOME, np.array([12, 5, 4]), 0.0).tolist() == [3, 0, 1]
    assert np.isnan(RUN.at(NONE, np.array([4]))).all()
    assert RUN.at(SOME, np.zeros(0, np.int64)).tolist() == []
    assert RUN.during(SOME, Episode(5, 12, 2, None)).tolist() == [2, 3]
    assert RUN.median(SOME, Episode(4, 12, 3, None)) == 2.0
    assert math.isnan(RUN.median(NONE, Episode(4, 12, 3, None)))


def test_named_parameters() -> None:
    events = [(0, "parameters", {"frozen": list("abcde"), "missing": ["f"]})]
    run = RunHistory(InMemoryReadings({}, events))
    assert [run.named_parameters(kind) for kind in ("frozen", "missing", "other")] == ["a, b, c, d …", "f", ""]


@pytest.mark.parametrize(
    ("config", "status", "planned"),
    [
        (resolve(preset="digits", settings={"train.steps": 7}), {"steps": 9}, 7),
        (None, {"steps": 9}, 9),
        (None, {}, None),
        (None, {"steps": "many"}, None),  # a status that nobody of ours wrote
    ],
)
def test_the_planned_length_of_a_run(config: Config | None, status: dict[str, Any], planned: int | None) -> None:
    assert RunHistory(InMemoryReadings({}), config, status).planned_steps == planned


def test_a_running_median_takes_no_notice_of_one_number() -> None:
    assert running_median(np.array([1.0, 2.0, 90.0, 3.0, 4.0]), 3).tolist() == [2.0, 3.0, 4.0]
