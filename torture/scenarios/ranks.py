"""One process of three is killed or stopped: the others end in words, and the run goes on to the same bytes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace

from safelight.config import Config
from torture.kills_in_ranks import DRAW, LOAD, SAVE, START, STEP, STOPPED, draw_blow, live
from torture.marks import Phase
from torture.ranks import Company, launch, train_together
from torture.scenario import Outcome, Scenario, Trial
from torture.scenarios.dirt import decoders, left_out
from torture.scenarios.kills import OTHER_BYTES, WORKERS
from torture.tiny_run import STEPS, configure, differing, digest, fingerprint, make_images

COUNT, MOST_BLOWS = 3, 3  # processes; blows at one run, then it is left alone to finish
DECODERS = "processes that decode killed beside"


def prepare(trial: Trial, change: Callable[[], object] | None = None) -> tuple[Config, dict[str, str]]:
    """The settings, and what a run that nobody disturbs ends with."""
    make_images(trial.folder / "images")
    config = configure(trial.folder / "images", train__batch_size=24, sample__every=8, data__scan_workers=2)
    train_together(trial.folder / "reference", config, COUNT, change=change)
    return config, fingerprint(trial.folder / "reference")


def kill_ranks(trial: Trial) -> Outcome:
    """A case is a run that is struck up to three times, and compared with one that was left alone."""
    config, reference = prepare(trial)
    outcome = Outcome(finals=digest(reference))
    for case in trial.cases:
        run, draw, newest = trial.folder / f"run-{case}", trial.draw(case), 0
        os.environ["SAFELIGHT_CACHE"] = str(trial.folder / f"cache-{case}")
        try:
            for number in range(MOST_BLOWS):
                blow = draw_blow(draw, run, COUNT, stop=number == 1 and case % 3 == 2)
                kept, workers, spare = draw.random() < 0.5, draw.choice(WORKERS), draw.random() < 0.5
                patient = replace(config, train=replace(config.train, timeout=blow.patience))
                company = launch(run, patient, COUNT, kept=kept, workers=workers, hold=STEPS - 1)
                outcome.tally[DECODERS] += number == 0 and not spare and kill_decoder(company)
                if (newest := live(company, blow, outcome, newest)) is None:
                    break
            train_together(run, config, COUNT)
            assert left_out(run) == [], f"a file was blamed for the death of its reader: {left_out(run)}"
            other = differing(reference, fingerprint(run))
            assert not other, f"{OTHER_BYTES} {other}"
        except AssertionError as error:
            outcome.lost.append((case, str(error)))
            continue
        outcome.tally["runs with the same bytes"] += 1
        shutil.rmtree(run)
    return outcome


def kill_decoder(company: Company) -> bool:
    """One of the processes that read the images, if they are read in this life."""
    while company.marks[0].phase in (Phase.STARTING, Phase.JOINING) and not company.look():
        if found := decoders(company.pids[0]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(found[0], signal.SIGKILL)
                return True
        time.sleep(0.002)
    return False


RANKS = Scenario(
    "ranks killed",
    "One of three processes of a run is killed or stopped, at random moments of starting, loading, stepping, saving "
    "and drawing, and so are processes that decode: the others end by themselves, in words that name it; every "
    "checkpoint in sight is whole; where the first process lives, no step is lost; all that the run ends with are the "
    "bytes of three processes that were left alone.",
    "blows", 60, 22, 1, 6, kill_ranks,
    least={SAVE: 5, LOAD: 3, DRAW: 3, STEP: 8, START: 3, STOPPED: 5, DECODERS: 5},
)  # fmt: skip
