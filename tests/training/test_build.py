"""What a config is refused for before anything is built, in words and with numbers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny import Quiet, parts_of, tiny

from safelight.errors import UsageError
from safelight.start import resume, train
from safelight.training import build as build_module
from safelight.training.build import check_divisible, check_micro_batches, out_of_memory
from safelight.training.step import Stepper, times_as_fast

PARTS = ("config", "runtime", "objective", "state", "network")


@pytest.mark.parametrize(
    ("batch", "micro_batches", "processes", "words"),
    [
        (8, 2, 4, None),
        (30, 1, 4, "Use 28 or 32"),
        (12, 8, 1, "Use 8 or 16"),
        (3, 2, 2, r"Use 4\."),  # nothing below
    ],
)
def test_a_batch_is_shared_evenly(batch: int, micro_batches: int, processes: int, words: str | None) -> None:
    if words is None:
        check_micro_batches(batch, micro_batches, processes)
    else:
        with pytest.raises(UsageError, match=words):
            check_micro_batches(batch, micro_batches, processes)


@pytest.mark.parametrize(("shards", "processes", "fits"), [(4, 2, True), (4, 4, True), (4, 3, False), (None, 3, False)])
def test_shards_are_shared_evenly(shards: int | None, processes: int, fits: bool) -> None:
    config = tiny(train__shards=shards)
    if fits:
        check_divisible(config, processes)
    else:
        with pytest.raises(UsageError, match="3 processes"):
            check_divisible(config, processes)


def test_a_setup_has_numbers_where_the_config_says_auto() -> None:
    setup = parts_of(train__accumulate="auto")
    assert (setup.config.train.accumulate, setup.config.data.channels, setup.config.data.classes) == (1, 1, 10)
    assert (setup.is_sharded, setup.group.size) == (False, 1)


@pytest.mark.parametrize(("settings", "words"), [({}, "micro-batches of 8"), ({"train__shards": 4}, "shards of 2")])
def test_what_did_not_fit_is_named(settings: dict[str, int], words: str) -> None:
    assert words in str(out_of_memory(tiny(**settings)))


# Precision


@pytest.mark.parametrize(
    ("native", "factor", "chosen", "timed"),
    [(True, 1.7, "bf16", True), (True, 1.1, "fp32", True), (False, 1.7, "fp32", False)],
    ids=["faster", "hardly faster", "without instructions"],
)
def test_precision_is_chosen_by_what_is_faster_and_recorded(
    native: bool, factor: float, chosen: str, timed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def times_as_fast(one: Stepper, other: Stepper, inputs: Any) -> float:
        asked.append((one.config.train.precision, other.config.train.precision))
        return factor

    monkeypatch.setattr(build_module, "has_native_bf16", lambda device: native)
    monkeypatch.setattr(build_module, "times_as_fast", times_as_fast)
    setup = parts_of(train__precision="auto")
    assert setup.config.train.precision == chosen
    assert setup.stepper.config.train.precision == chosen
    assert asked == [("fp32", "bf16")] * timed
    assert parts_of(train__precision="fp32").config.train.precision == "fp32"
    assert asked == [("fp32", "bf16")] * timed, "nothing is timed where it is said"


def test_speeds_are_compared_in_turns_and_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    setup, now, turns = parts_of(), [0.0], list[str]()
    one, other = setup.stepper, Stepper(*(getattr(setup.stepper, name) for name in PARTS))
    before = [parameter.detach().clone() for parameter in setup.state.model.parameters()]
    seconds = {one: iter([9.0, 2.0, 2.0, 50.0, 2.0, 2.0]), other: iter([1.0] * 6)}
    true = Stepper.dry_run

    def dry_run(stepper: Stepper, inputs: Any) -> None:
        true(stepper, inputs)
        turns.append("one" if stepper is one else "other")
        now[0] += next(seconds[stepper])

    monkeypatch.setattr(Stepper, "dry_run", dry_run)
    monkeypatch.setattr("safelight.training.step.time", SimpleNamespace(perf_counter=lambda: now[0]))
    assert times_as_fast(one, other, setup.loader.prepare(0)) == 2.0, "neither the first pass nor one slow one counts"
    assert turns == ["one", "other"] * 6
    after = list(setup.state.model.parameters())
    assert all(torch.equal(a, b) and a.grad is None for a, b in zip(after, before, strict=True))


def test_a_resume_keeps_the_precision_that_was_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_module, "has_native_bf16", lambda device: True)
    monkeypatch.setattr(build_module, "times_as_fast", lambda *_: 2.0)
    train(tiny(train__steps=2, train__precision="auto"), run=tmp_path / "run", terminal=(screen := Quiet()))
    assert any("bf16 is 2.00 times as fast" in line for line in screen.said)
    assert "precision: bf16" in (tmp_path / "run" / "config.yaml").read_text()
    monkeypatch.setattr(build_module, "times_as_fast", lambda *_: 0.5)
    resume(tmp_path / "run", settings={"train.steps": 3}, force=True, terminal=Quiet())
    assert "precision: bf16" in (tmp_path / "run" / "config.yaml").read_text()
