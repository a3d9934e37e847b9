"""How runs that learn badly are counted."""

from __future__ import annotations

from pathlib import Path

import yaml

from bench.learning import DATA, TRAINED, Case, bad, for_older_code, healthy, misses, rows

CASES = [
    Case("rate too high", "x30", "digits", 400, {}, ("lr.too-high",)),
    Case("rate too high", "x3", "digits", 400, {}, ("lr.too-high",)),
    Case("width", "w1", "digits", 400, {}, ("model.too-small",)),
    Case("healthy", TRAINED, "digits", 400, {}),
]
HARMED = [True, False, True, False]
FOUND = [["lr.too-high", "x"], [], ["y"], ["z"]]


def test_only_what_did_harm_is_to_be_found() -> None:
    assert rows(CASES, HARMED, {"after": FOUND}) == [
        ["rate too high", 2, 1, 1, 1, 0],
        ["width", 1, 1, 1, 0, 0],
        ["healthy", 1, 0, 0, 0, 1],
        ["all bad ones", 3, 2, 2, 1, 0],
    ]
    assert misses(CASES, HARMED, FOUND) == [
        "Found without harm: healthy, as it is: z (1 runs)",
        "Not right: width, w1: y (1 runs)",
    ]


def test_there_are_a_hundred_bad_runs_of_two_data_sets_and_healthy_ones_beside_each() -> None:
    seeds, datasets = range(400, 403), ("digits", "fashion-mnist")
    cases = [*bad(seeds, datasets), *healthy(seeds, datasets)]
    assert sum(bool(case.causes) for case in cases) >= 100
    assert len({case.folder for case in cases}) == len(cases)
    assert {case.data for case in bad(seeds, list(DATA))} == set(DATA)


def test_older_code_is_given_the_settings_that_it_knows(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text("{train: {steps: 7, patience: 3, seed: null}, sample: {every: null}, new: {a: 1}}")
    for name in ("record.sqlite", "run.json"):
        (run / name).touch()
    copy = for_older_code(run, tmp_path / "old", {"train": {"steps": 1, "seed": 0}, "sample": {"every": None}})
    assert yaml.safe_load((copy / "config.yaml").read_text()) == {"train": {"steps": 7}, "sample": {"every": None}}
