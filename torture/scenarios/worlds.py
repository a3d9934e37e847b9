"""Another number of processes in every life, and a violent end of each: the bytes of one that was left alone."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

from torture.kills_in_ranks import LOAD, SAVE, Blow, draw_blow, live
from torture.ranks import launch, train_together
from torture.scenario import Outcome, Scenario, Trial
from torture.scenarios.kills import OTHER_BYTES, WORKERS
from torture.tiny_run import configure, differing, digest, fingerprint, make_images, train_alone

SHARDS, WORLDS = 12, (1, 2, 3, 4)
MOST_LIVES = 5  # of one run that end violently; in one more it is left alone to finish
DRAWN = "samples/"  # drawn by other numbers of processes, pictures may differ by one level of a pixel


def change_worlds(trial: Trial, *, shards: int | None = SHARDS) -> Outcome:
    """A case is a run that is killed up to five times and goes on with another number of processes."""
    make_images(trial.folder / "images")
    config = configure(trial.folder / "images", train__batch_size=24, train__accumulate=1, train__shards=shards)
    train_alone(trial.folder / "reference", config)
    reference, outcome = _tensors(trial.folder / "reference"), Outcome()
    outcome.finals = digest(reference)
    for case in trial.cases:
        run, draw, world, newest = trial.folder / f"run-{case}", trial.draw(case), 0, 0
        try:
            for _ in range(MOST_LIVES):
                world = draw.choice([each for each in WORLDS if each != world])
                blow, kept, workers = draw_end(draw, run, world), draw.random() < 0.5, draw.choice(WORKERS)
                patient = replace(config, train=replace(config.train, timeout=blow.patience))
                company = launch(run, patient, world, kept=kept, workers=workers)
                if (newest := live(company, blow, outcome, newest)) is None:
                    break
                outcome.tally[f"of {world}"] += 1
            train_together(run, config, draw.choice([each for each in WORLDS if each != world]))
            other = differing(reference, _tensors(run))
            assert not other, f"{OTHER_BYTES} {other}"
        except AssertionError as error:
            outcome.lost.append((case, str(error)))
            continue
        outcome.tally["runs with the same bytes"] += 1
        shutil.rmtree(run)
    return outcome


def draw_end(draw: random.Random, run: Path, world: int) -> Blow:
    """One process dies, or all of them at once, as when a machine does."""
    blow = draw_blow(draw, run, world)
    if draw.random() < 0.5:
        return blow
    return replace(blow, victims=tuple(sorted(range(world), key=lambda rank: rank != blow.victims[0])))


def _tensors(run: Path) -> dict[str, str]:
    """And whatever else must not depend on the number of processes."""
    return {name: found for name, found in fingerprint(run).items() if not name.startswith(DRAWN)}


CHANGING = Scenario(
    "changing worlds",
    "Every life of a run with train.shards = 12 has another number of processes (1 to 4) than the one before, and ends "
    "with the death of one or of all of them at a random moment; the tensors at its end are those of one process that "
    "was left alone.",
    "lives", 40, 10, 1, 5, change_worlds, least={SAVE: 3, LOAD: 3},
)  # fmt: skip
WITHOUT_SHARDS = Scenario(
    "worlds without shards",
    "Gradients are added in an order that depends on the number of processes.",
    "lives", 1, 1, 1, 1, lambda trial: change_worlds(trial, shards=None), symptom=OTHER_BYTES,
)  # fmt: skip
