"""Faults are named after known causes, and every deed does something."""

from __future__ import annotations

import pytest
import torch

from gauntlet.causes import CAUSES
from gauntlet.doubles import DOUBLES
from gauntlet.fault import Fault
from gauntlet.faults import all_faults
from gauntlet.healthy import RECIPES
from gauntlet.loop import Loop
from gauntlet.options import BASES
from gauntlet.plan import FAST_FAULTS, FAST_RECIPES, fast, faulty, with_twins_of_sick
from gauntlet.scenario import Scenario
from gauntlet.trial import Deed, build

STEPS = 4
# What shows only in samples, in an average, or in what is saved: the weights go their way.
ELSEWHERE = {"add-last-noise", "never-average", "start-late", "sample-as-other-type", "average-too-long"}
SOME = ("permute-labels", "draw-low-part", "shuffle-timesteps", "pass-zero", "clamp-noised", "ask-for-fresh-noise",
        "negate-loss", "freeze-half", "never-zero", "leave-out-half", "raise-rate", "lower-rate", "train-in-bfloat16",
        "couple-batch", "bound-output", "broadcast-target", "seed-every-step")  # fmt: skip


def trained(scenario: Scenario) -> Loop:
    run = build(scenario)
    assert isinstance(run, Loop)
    deed = Deed(scenario, run)
    for step in range(STEPS):
        deed.at(step)
        run.take(None, "all")
    return run


def weights(run: Loop) -> torch.Tensor:
    return torch.cat([weight.detach().reshape(-1) for weight in run.weights()])


def test_there_are_enough_faults_and_recipes() -> None:
    assert len(all_faults()) >= 85
    assert len(RECIPES) >= 24


def test_ids_are_unique() -> None:
    keys = [(each.id, each.base, each.seed) for each in faulty(BASES, (0, 1))]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("fault", all_faults().values(), ids=lambda fault: fault.id)
def test_causes_are_known_and_told(fault: Fault) -> None:
    assert set(fault.causes) <= CAUSES
    assert len(set(fault.causes)) == len(fault.causes)
    assert fault.about.endswith(".")
    assert fault.bases


def test_what_is_planned_exists() -> None:
    for deeds, _ in DOUBLES:
        for name, dose in deeds:
            assert dose is None or dose in all_faults()[name].doses
    assert {each.id for each in fast()} >= set(FAST_RECIPES)
    assert {each.id for each in fast() if each.kind == "faulty"} == set(FAST_FAULTS)
    planned = with_twins_of_sick(faulty(("mixture",), (0,)))
    twins = {each.id for each in planned if each.kind == "twin"}
    assert {each.twin.id for each in planned if each.kind == "faulty"} == twins


@pytest.mark.parametrize("name", SOME)
def test_a_deed_changes_the_run(name: str) -> None:
    sick = next(each for each in faulty(("mixture",), (0,), [name], variants=False))
    assert not torch.equal(weights(trained(sick)), weights(trained(sick.twin)))


@pytest.mark.parametrize("name", sorted(ELSEWHERE))
def test_a_deed_elsewhere_leaves_the_weights_alone(name: str) -> None:
    sick = next(each for each in faulty(("mixture",), (0,), [name], variants=False))
    ill, well = trained(sick), trained(sick.twin)
    assert torch.equal(weights(ill), weights(well))
    noise = torch.randn(8, 2)
    averages = [torch.cat([s.reshape(-1) for s in run.shadows()]) for run in (ill, well)]
    drawn = [run.sample(run.model, noise) for run in (ill, well)]
    assert not torch.equal(*averages) or not torch.equal(*drawn)


def test_twins_are_the_same_run() -> None:
    sick = faulty(("mixture",), (0,), ["never-step"])[0]
    assert torch.equal(weights(trained(sick.twin)), weights(trained(sick.twin)))


def test_a_fault_of_one_step_is_taken_back() -> None:
    sick = next(each for each in faulty(("mixture",), (0,), ["burst-rate"]))
    run = build(sick)
    deed = Deed(sick, run)
    deed.at(deed.begin)
    assert run.rate(deed.begin) == 500 * run.options.lr
    deed.at(deed.begin + 1)
    assert run.rate(deed.begin) < run.options.lr
