"""A few mistakes of flow matching and EDM, told nothing but the tensors of the step, and the same loops healthy."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gauntlet.options import CONTINUOUS, Base
from gauntlet.plan import faulty, healthy
from gauntlet.scenario import Verdict
from gauntlet.trial import run_training

pytestmark = pytest.mark.timeout(1800)
STEPS = 12
FAULTS: tuple[tuple[Base, str, str], ...] = (
    ("flow", "swap-ends, undeclared", "target.against-time"),
    ("flow", "shift-noise-only@3.0, undeclared", "sampler.other-times"),
    ("flow", "swap-ends", "forward.other-schedule"),
    ("edm", "forget-input-scale, undeclared", "forward.input-not-scaled"),
    ("edm", "tell-other-noise@log sigma", "sampler.other-times"),
)
RECIPES = ("undeclared",)


@pytest.fixture(autouse=True)
def still_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safelight.watching.loop.time", SimpleNamespace(perf_counter=time.process_time))


def carry_out(base: Base, name: str, *, sick: bool) -> Verdict:
    plan = faulty((base,), (0,), variants=False) if sick else healthy((base,), (0,), (name,))
    [scenario] = [each for each in plan if each.id == name]
    return run_training(replace(scenario, changes=(*scenario.changes, ("steps", STEPS), ("warmup", 4))))


@pytest.mark.parametrize(("base", "name", "cause"), FAULTS)
def test_the_cause_comes_first(base: Base, name: str, cause: str) -> None:
    verdict = carry_out(base, name, sick=True)
    assert verdict.error is None
    assert [found["cause"] for found in verdict.findings if found["severity"] != "info"][:1] == [cause]
    assert cause in verdict.causes[0]


@pytest.mark.parametrize("base", CONTINUOUS)
@pytest.mark.parametrize("name", RECIPES)
def test_healthy_loops_are_left_alone(base: Base, name: str) -> None:
    verdict = carry_out(base, name, sick=False)
    assert verdict.error is None
    assert [found["cause"] for found in verdict.findings if found["severity"] != "info"] == []


def test_every_fault_of_continuous_time_is_tried_with_and_without_a_declaration() -> None:
    ids = {each.id for each in faulty(CONTINUOUS, (0,), variants=False)}
    told = {name for name in ids if not name.endswith(", undeclared")}
    assert len(told) > 35
    assert ids == told | {f"{name}, undeclared" for name in told}
