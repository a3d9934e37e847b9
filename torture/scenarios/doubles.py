"""Two processes on one run folder: the second is refused in words, the first is unharmed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from safelight.config import Config
from safelight.files import RunLock
from torture.child_run import LONGEST, REFUSED, finish, halted, start
from torture.marks import Marks, Phase
from torture.scenario import Outcome, Scenario, Trial
from torture.tiny_run import (
    check_end,
    configure,
    differing,
    digest,
    finals,
    fingerprint,
    log_of,
    make_images,
    train_alone,
)

STEPS, INTRUDERS = 160, 3
WORDS = ("is in use by process", "already holds a run")


def intrude(trial: Trial, *, broken: bool = False) -> Outcome:
    """A case is a run at which three others try to take over at random moments, or one that began with it."""
    make_images(trial.folder / "images")
    config, whole, outcome = configure(trial.folder / "images", train__steps=STEPS), trial.folder / "whole", Outcome()
    train_alone(whole, config)
    reference, change = fingerprint(whole, STEPS), _unlock if broken else None
    outcome.finals = digest(finals(whole, STEPS))
    for case in trial.cases:
        run, draw, marks = trial.folder / f"run-{case}", trial.draw(case), Marks()
        first = start(run, config, marks=marks, log=log_of(run), change=change)
        try:
            if case % 4 == 3:  # both begin a new run in the same folder: one of them, whichever it is
                code, said = _second(run, config, trial.folder / f"second-{case}.log", change)
                outcome.count += 1
                assert {code, finish(first)} == {0, REFUSED}, f"not one of two was refused: {said[-300:]}"
                outcome.tally["at the very start"] += 1
            else:
                _wait_for_training(first, marks)
                for number in range(INTRUDERS):
                    time.sleep(draw.uniform(0, 0.15))
                    with halted(first):  # it cannot come to its end meanwhile
                        if marks.phase not in (Phase.TRAINING, Phase.DRAWING):
                            break
                        code, said = _second(run, config, trial.folder / f"second-{case}-{number}.log", change)
                    outcome.count += 1
                    assert code == REFUSED, f"the second process was not refused but ended with {code}: {said[-200:]}"
                    assert any(words in said for words in WORDS), f"the second process said {said[-300:]}"
                    outcome.tally["while it trained"] += 1
                check_end(run, finish(first))
            other = differing(reference, fingerprint(run, STEPS))
            assert not other, f"the first run has other bytes in {other}"
        except (AssertionError, OSError) as error:
            outcome.lost.append((case, str(error)))
            _end(first)
    return outcome


def _wait_for_training(child: int, marks: Marks) -> None:
    limit = time.perf_counter() + LONGEST
    while marks.phase != Phase.TRAINING:
        time.sleep(0.002)
        assert time.perf_counter() < limit, "the first run did not begin"


def _second(run: Path, config: Config, log: Path, change: Callable[[], None] | None) -> tuple[int | None, str]:
    code = finish(start(run, config, marks=Marks(), log=log, change=change))
    return code, log.read_text()


def _unlock() -> None:
    RunLock.__enter__ = lambda self: self  # type: ignore[assignment]
    RunLock.__exit__ = lambda self, *_: None  # type: ignore[assignment]


def _end(child: int) -> None:
    try:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    except (ProcessLookupError, ChildProcessError):
        return


DOUBLES = Scenario(
    "two on one folder",
    "While a run trains, or at its very start, others try to train or resume in the same folder: each is refused in "
    "words, and the first ends with the bytes of a run that was left alone.",
    "intruders", 30, 12, 4, 6, intrude,
)  # fmt: skip
NO_LOCK = Scenario(
    "lock removed",
    "The run folder is not locked.",
    "intruders", 1, 2, 1, 2, lambda trial: intrude(trial, broken=True), symptom="was not refused",
)  # fmt: skip
