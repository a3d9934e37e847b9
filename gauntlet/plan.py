"""Which runs are made: faults by base, dose, time and seed; their twins; healthy recipes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from gauntlet.doubles import DOUBLES
from gauntlet.fault import Fault
from gauntlet.faults import all_faults
from gauntlet.healthy import RECIPES, Recipe
from gauntlet.options import BASES, CONTINUOUS, Base, defaults
from gauntlet.scenario import Scenario

SHORT = {"mixture": 40, "plain": 16}  # steps of the fast subset
# Images that a healthy run of ours sees: after 2,560 of them, in its 80 steps, it is worse than a linear filter, and a
# warning that it is undertrained is true.
LEARNT = {"own": 12_800}
FAST_FAULTS = (
    "poison-pixels@nan",
    "leave-in-0-1",
    "permute-labels",
    "ignore-labels",
    "flip-table",
    "draw-low-part@10",
    "seed-every-step",
    "pass-zero",
    "noise-by-other-schedule",
    "draw-other-noise@0 to 1",
    "ask-for-other-type@1",
    "ask-for-fresh-noise",
    "negate-loss",
    "detach-prediction",
    "zero-all-weights",
    "cut-time-embedding",
    "never-step",
    "optimise-a-copy",
    "maximize",
    "never-average",
    "add-last-noise",
    "sample-as-other-type",
)
FAST_RECIPES = ("as-it-is", "default-init", "always-clipping", "stratified", "accumulation", "lion")


def of_fault(fault: Fault, base: Base, seed: int, *, variants: bool) -> Iterator[Scenario]:
    """Every dose; and with `variants` late ones and those that are shown less, of the first dose."""
    for dose in fault.doses or (None,):
        name = fault.id if dose is None else f"{fault.id}@{dose}"
        plain = Scenario(
            name,
            "faulty",
            base,
            seed,
            ((fault.id, dose),),
            (fault.causes,),
            begin=fault.begin,
            once=fault.once,
            changes=tuple(fault.needs.items()),
        )
        yield plain
        if base in CONTINUOUS:
            changes = (*plain.changes, ("declared", False))
            causes = ((*fault.causes, *fault.undeclared),)
            yield replace(plain, id=f"{name}, undeclared", changes=changes, causes=causes)
        if not variants or dose not in (*fault.doses[:1], None):
            continue
        if fault.late is not None:
            yield replace(plain, id=f"{name}, late", begin=fault.late)
        if base != "own" and base not in CONTINUOUS:
            for shown in fault.shown:
                yield replace(plain, id=f"{name}, told {shown}", shown=shown)


def doubles(base: Base, seed: int) -> Iterator[Scenario]:
    for deeds, bases in DOUBLES:
        if base in bases:
            causes = tuple(all_faults()[name].causes for name, _ in deeds)
            yield Scenario(" + ".join(name for name, _ in deeds), "faulty", base, seed, deeds, causes)


def faulty(
    bases: Sequence[Base], seeds: Iterable[int], only: Sequence[str] = (), *, variants: bool = True
) -> list[Scenario]:
    """`only`: ids of faults, or of single scenarios."""
    found: list[Scenario] = []
    for base in bases:
        for seed in seeds:
            for fault in all_faults().values():
                if base in fault.bases:
                    found += of_fault(fault, base, seed, variants=variants)
            found += doubles(base, seed) if variants else ()
    return [each for each in found if not only or each.id in only or any(name in only for name, _ in each.faults)]


def healthy(bases: Sequence[Base], seeds: Iterable[int], only: Sequence[str] = ()) -> list[Scenario]:
    """Long enough to be healthy."""

    def changes(base: Base, recipe: Recipe) -> tuple[tuple[str, Any], ...]:
        steps = LEARNT.get(base, 0) // defaults(base).changed(**recipe.changes).batch
        return (*recipe.changes.items(), *((("steps", steps),) if steps else ()))

    return [
        Scenario(
            name,
            "healthy",
            base,
            seed,
            shown=recipe.shown,
            recipe=name,
            changes=changes(base, recipe),
        )
        for base in bases
        for seed in seeds
        for name, recipe in RECIPES.items()
        if base in recipe.bases and (not only or name in only)
    ]


def with_twins_of_sick(scenarios: Sequence[Scenario]) -> list[Scenario]:
    """Each twin once, before those that are compared with it."""
    twins = {(each.twin.id, each.base, each.seed): each.twin for each in scenarios if each.kind == "faulty"}
    return [*twins.values(), *scenarios]


def fast() -> list[Scenario]:
    """A short look at everything, mostly on the cheapest base."""
    sick = [each for each in faulty(("mixture",), (0,), variants=False) if each.id in FAST_FAULTS]
    sick += [each for each in faulty(("plain",), (0,), variants=False) if each.id == "leave-in-0-1"]
    well = healthy(("mixture",), (0,), FAST_RECIPES)
    return [
        replace(each, changes=(*each.changes, ("steps", SHORT[each.base]), ("warmup", 5))) for each in [*sick, *well]
    ]


def everything(bases: Sequence[Base] = BASES) -> list[str]:
    return [fault.id for fault in all_faults().values() if set(fault.bases) & set(bases)]
