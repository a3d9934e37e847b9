"""NaN and Inf in one step of a hundred: each is refused and counted, the run ends finite, and a replay is equal."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from safelight.checkpoints.reader import load
from safelight.diffusion.micro_batch import MicroBatch
from safelight.record.reading import read_events
from safelight.training import batch_loader
from safelight.training.step import Stepper
from torture.child_run import ended, finish, start
from torture.marks import Marks
from torture.scenario import Outcome, Scenario, Trial
from torture.tiny_run import (
    check_end,
    configure,
    differing,
    digest,
    final_folder,
    finals,
    log_of,
    make_images,
    train_alone,
)

STEPS, SHARE = 2000, 0.01
KILLS = 3  # of the run that is replayed
KINDS = ("NaN in the noise", "Inf in an image", "Inf in a gradient", "NaN in a gradient")


def draw_weather(trial: Trial, case: int) -> dict[int, str]:
    """Which steps are struck, and how; now and then two in a row."""
    draw = trial.draw(case)
    struck = set(draw.sample(range(1, STEPS - 1), round(STEPS * SHARE)))
    struck |= {step + 1 for step in struck if draw.random() < 0.2}
    return {step: draw.choice(KINDS) for step in sorted(struck)}


def spoil(weather: dict[int, str]) -> Callable[[], None]:
    """Patches a child: the same steps are struck in the same way, however often they are made."""

    def change() -> None:
        prepare, accumulate = batch_loader.BatchLoader.prepare, Stepper.accumulate

        def spoilt_inputs(self: batch_loader.BatchLoader, step: int, *more: Any) -> list[MicroBatch]:
            inputs, kind = prepare(self, step, *more), weather.get(step)
            if kind == KINDS[0]:
                inputs[0].noise[0, 0, 0, 0] = float("nan")
            elif kind == KINDS[1]:
                inputs[-1] = replace(inputs[-1], x0=inputs[-1].x0.clone().fill_(float("inf")))
            return inputs

        def spoilt_gradients(self: Stepper, micro: MicroBatch, step: int, *more: Any) -> torch.Tensor:
            loss, kind = accumulate(self, micro, step, *more), weather.get(step)
            if kind in KINDS[2:]:
                gradient = next(p.grad for p in self.state.model.parameters() if p.grad is not None)
                gradient.view(-1)[0] = float("inf" if kind == KINDS[2] else "nan")
            return loss

        batch_loader.BatchLoader.prepare, Stepper.accumulate = spoilt_inputs, spoilt_gradients

    return change


def ride_out(trial: Trial) -> Outcome:
    """A case is a run through a storm, and the same run killed three times and resumed."""
    outcome = Outcome()
    make_images(trial.folder / "images")
    config = configure(trial.folder / "images", train__steps=STEPS, checkpoint__every=100, sample__every=STEPS)
    for case in trial.cases:
        weather, run, again = draw_weather(trial, case), trial.folder / f"run-{case}", trial.folder / f"again-{case}"
        try:
            train_alone(run, config, change=spoil(weather))
            ends = load(final_folder(run, STEPS))
            assert all(bool(t.isfinite().all()) for group in ends.tensors.values() for t in group.values()), (
                "not finite"
            )
            assert ends.state["refused"] == len(weather), f"{ends.state['refused']} of {len(weather)} were counted"
            told = [step for step, _, _ in read_events(run / "record.sqlite", "refused")]
            assert told == [*weather], f"{len(told)} refusals are in the record, {len(weather)} were made"
            draw, marks = trial.draw(case), Marks()
            for until in sorted(draw.sample(range(150, STEPS - 50), KILLS)):
                child = start(again, config, marks=marks, log=log_of(again), change=spoil(weather))
                while marks.step < until and ended(child, 0.002) is None:
                    pass
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            check_end(again, finish(start(again, config, marks=marks, log=log_of(again), change=spoil(weather))))
            other = differing(finals(run, STEPS), finals(again, STEPS))
            assert not other, f"the replay has other bytes in {other}"
            told = [step for step, _, _ in read_events(again / "record.sqlite", "refused")]
            assert told == [*weather], "the replay has other refusals in its record"
        except AssertionError as error:
            outcome.lost.append((case, str(error)))
        outcome.count += len(weather)
        outcome.tally.update(weather.values())
        outcome.finals = digest({"": outcome.finals} | finals(run, STEPS))
    return outcome


def ignore_refusals(trial: Trial) -> Outcome:
    """The control: updates that are not finite are made all the same."""
    make_images(trial.folder / "images")
    config, weather = configure(trial.folder / "images"), {5: KINDS[2]}

    def change() -> None:
        from safelight.training import step

        spoil(weather)()
        prepare = step.prepare_update
        step.prepare_update = lambda optimizer, lr, refused: prepare(optimizer, lr, torch.zeros_like(refused))

    run, marks = trial.folder / "run", Marks()
    child = start(run, config, marks=marks, log=log_of(run), change=change)
    code = finish(child)
    said = log_of(run).read_text()
    spoilt = code != 0 or "NaN or Inf" in said
    return Outcome(1, [(0, f"weights that are not finite: {json.dumps(said[-300:])}")] if spoilt else [])


STORMS = Scenario(
    "NaN storm",
    "NaN or Inf in the noise, the images or the gradients at 1 % of 2,000 steps: each is refused, counted and "
    "recorded, all tensors end finite, and the same run killed three times ends with the same bytes and the same "
    "refusals.",
    "storms of a step", 40, 2, 1, 1, ride_out, alike=False,
)  # fmt: skip
REFUSALS = Scenario(
    "refusals ignored",
    "Updates that are not finite are made all the same.",
    "runs", 1, 1, 1, 1, ignore_refusals, symptom="not finite",
)  # fmt: skip
