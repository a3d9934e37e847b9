"""`safelight.Checkpoints` in a plain loop that is killed again and again: no save that returned is lost."""

from __future__ import annotations

import copy
import functools
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safelight.checkpoints import folder as retention
from safelight.checkpoints import saves, writer
from safelight.checkpoints.coordinator import SaveCoordinator
from safelight.checkpoints.snapshot import Snapshot, prepare
from torture.plain_loop import LOST, OTHER_STATE, Blow, torment, undisturbed
from torture.scenario import Outcome, Scenario, Trial

MOST_KILLS = 10  # of one loop; then it is left alone to end
CALLS = 150  # to the disk: of half a dozen saves
MILLISECONDS = 10


def kill_plain_loops(trial: Trial, *, broken: Callable[[], object] = lambda: None) -> Outcome:
    """A case is a loop that is killed up to ten times, at a call to the disk or at a drawn time."""
    outcome, marks = Outcome(), undisturbed(trial.folder / "whole")
    outcome.finals = marks[max(marks)]
    broken()

    def tell(where: str) -> None:
        outcome.count += 1
        outcome.tally["in the middle of a write" if where == "write" else f"at {where}"] += 1

    for case in trial.cases:
        folder, draw = trial.folder / f"loop-{case}", trial.draw(case)
        wrong = torment(folder, [draw_blow(draw) for _ in range(MOST_KILLS)], marks, tell)
        outcome.lost += [(case, words) for words in wrong[:3]]
        shutil.rmtree(folder)
    return outcome


def draw_blow(draw: random.Random) -> Blow:
    """At a call to the disk, or some milliseconds after a save, which is as long as the next one takes."""
    call, saves, share, timed = draw.randint(1, CALLS), draw.randint(0, 5), draw.random(), draw.random() < 0.4
    return Blow(saves=saves, seconds=MILLISECONDS * share / 1000) if timed else Blow(call)


def save_in_place() -> None:
    """Without the temporary name and the rename after it, as `torch.save` does."""

    def in_place(folder: Path, snapshot: Snapshot, *, disk: Any) -> Path:
        path = retention.place(folder, snapshot.step)
        writer._write_files(path, prepare(snapshot), disk, SaveCoordinator())
        return path

    saves.write = in_place  # type: ignore[assignment]


def forget_random_states() -> None:
    saves.Checkpoints._restore_random = lambda *_: None  # type: ignore[method-assign, assignment]


def save_later() -> None:
    """`save` returns before anything is written: the next one writes it."""
    write, waiting = saves.write, list[tuple[Path, Snapshot]]()

    def lazily(folder: Path, snapshot: Snapshot, *, disk: Any) -> Path:
        waiting.append((folder, copy.deepcopy(snapshot)))
        return retention.place(folder, snapshot.step) if len(waiting) < 2 else write(*waiting.pop(0), disk=disk)

    saves.write = lazily  # type: ignore[assignment]


def _control(name: str, deed: str, broken: Callable[[], object], symptom: str) -> Scenario:
    act = functools.partial(kill_plain_loops, broken=broken)
    return Scenario(name, deed, "kills", 10, 4, 2, 4, act, symptom=symptom)


PLAIN_LOOPS = Scenario(
    "plain loops",
    "SIGKILL in a plain PyTorch loop with safelight.Checkpoints, at drawn moments and in the middle of drawn calls to "
    "the disk, resumed each time: the newest checkpoint has the exact state of a save, weights, moments, averages, "
    "schedule and random states; no save that had returned is lost; it ends as a loop that was left alone.",
    "kills", 200, 40, 2, 20, kill_plain_loops, least={"in the middle of a write": 10, "at a drawn moment": 20},
)  # fmt: skip
IN_PLACE = _control(
    "plain loops, in place", "Checkpoints are written under their own names.", save_in_place, "a life ended with 9"
)
RANDOM = _control(
    "plain loops, random states", "Random states are not restored.", forget_random_states, OTHER_STATE
)  # fmt: skip
LATER = _control("plain loops, saved later", "save returns before the checkpoint is durable.", save_later, LOST)
