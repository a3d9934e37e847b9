"""One scenario carried out: built, made ill, watched, asked."""

from __future__ import annotations

import copy
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import safelight
from gauntlet.baselines import complaints
from gauntlet.bases.continuous import Continuous, build_edm, build_flow
from gauntlet.bases.mixture import build_mixture
from gauntlet.bases.own import Own, build_own
from gauntlet.bases.plain import build_plain
from gauntlet.fault import apply
from gauntlet.faults import all_faults
from gauntlet.healthy import RECIPES
from gauntlet.loop import Loop
from gauntlet.loop_parts import PIECES
from gauntlet.metrics import measure
from gauntlet.scenario import Scenario, Verdict
from safelight.errors import SafelightError

LOOKS = (1, 3, 10, 30, 100)
LONGEST = 600  # seconds, after which a trial is given up


def run_training(
    scenario: Scenario, *, watched: bool = True, keep: Callable[[Verdict, Path], object] | None = None
) -> Verdict:
    """Whatever the run dies of, there is a verdict. `keep`: is shown the run before it is thrown away."""
    torch.set_num_threads(1)
    verdict = Verdict(
        scenario.id,
        scenario.kind,
        scenario.base,
        scenario.seed,
        causes=scenario.causes,
        twin=None if scenario.kind != "faulty" else scenario.twin.id,
        begin=0 if scenario.begin is None else int(scenario.begin * scenario.options.steps),
        once=scenario.once,
        shown=scenario.shown,
    )
    started = time.perf_counter()
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(LONGEST)
    with tempfile.TemporaryDirectory(prefix="gauntlet-") as folder:
        run = Path(folder) / "run"
        try:
            _undergo(scenario, verdict, run, watched)
        except Exception as error:  # a faulty loop may die: that is no fault of the gauntlet
            verdict.error = f"{type(error).__name__}: {error}"[:500]
        finally:
            signal.alarm(0)
        verdict.seconds = round(time.perf_counter() - started, 2)
        if keep is not None:
            keep(verdict, run)
    return verdict


def _give_up(*_: object) -> None:
    raise TimeoutError(f"given up after {LONGEST} s")


def build(scenario: Scenario) -> Loop | Own:
    builders: dict[str, Callable[..., Loop | Own]] = {
        "mixture": build_mixture,
        "plain": build_plain,
        "own": build_own,
        "flow": build_flow,
        "edm": build_edm,
    }
    run = builders[scenario.base](scenario.options, scenario.seed)
    if isinstance(run, Loop) and run.options.trained:
        _train_before(run)
    if scenario.recipe is not None:
        RECIPES[scenario.recipe].prepare(run)
    return run


def _train_before(run: Loop) -> None:
    """A healthy past, with a sane rate and an optimizer that is fresh again afterwards."""
    fresh, past = copy.deepcopy(run.optimizer.state_dict()), run.options.changed(lr=2e-3, steps=run.options.trained)
    run.rate = lambda step: past.lr * min(1.0, (step + 1) / 10)
    for _ in range(run.options.trained):
        run.take(None, "all")
    del run.rate
    run.optimizer.load_state_dict(fresh)
    run.optimizer.state.clear()
    run.step = 0
    run.losses.clear()
    run.norms.clear()


class Deed:
    """Does the faults of a scenario when their time has come, and undoes those of one step."""

    def __init__(self, scenario: Scenario, run: Loop | Own) -> None:
        self.scenario, self.run = scenario, run
        self.begin = 0 if scenario.begin is None else int(scenario.begin * scenario.options.steps)
        self._before: dict[str, Any] | None = None

    def at(self, step: int) -> None:
        if step == self.begin and self._before is None:
            self._before = {name: vars(self.run)[name] for name in PIECES if name in vars(self.run)}
            for name, dose in self.scenario.faults:
                apply(all_faults()[name], self.run, dose)  # pyright: ignore[reportArgumentType]
            if isinstance(self.run, Own):
                self.run.install()
        elif self.scenario.once and step == self.begin + 1 and self._before is not None:
            for name in PIECES:
                vars(self.run).pop(name, None)
            vars(self.run).update(self._before)


def _undergo(scenario: Scenario, verdict: Verdict, folder: Path, watched: bool) -> None:
    run = build(scenario)
    table, held = run.table.clone(), _held_out(run)
    deed = Deed(scenario, run)
    if scenario.begin is None:
        deed.at(0)
    try:
        if isinstance(run, Own):
            losses, norms = _train_own(run, deed, verdict, folder, watched)
        else:
            losses, norms = run.losses, run.norms
            _train_foreign(run, deed, verdict, folder, watched)
    finally:
        if isinstance(run, Loop):
            losses, norms = run.losses, run.norms
        if not watched and not isinstance(run, Continuous):
            verdict.metrics = measure(run, table, held)
    verdict.baselines = complaints(losses, norms)
    tenth = max(1, len(losses) // 10)
    if losses:
        verdict.loss = (float(np.mean(losses[:tenth])), float(np.mean(losses[-tenth:])))


def _held_out(run: Loop | Own) -> tuple[Tensor, Tensor]:
    if isinstance(run, Loop):
        return run.held
    from safelight.data.batches import scale
    from safelight.data.images import hold_out

    images = run.parts.images
    _, ids = hold_out(images, run.parts.config.data.held_out)
    ids = ids if len(ids) else np.arange(len(images))
    labels = np.zeros(len(ids)) if images.labels is None else images.labels[ids]
    return torch.from_numpy(scale(images.take(ids))), torch.from_numpy(labels.astype(np.int64))


def _train_foreign(run: Loop, deed: Deed, verdict: Verdict, folder: Path, watched: bool) -> None:
    watch: Any = None
    if watched:
        try:
            watch = safelight.watch(
                run.model,
                run.optimizer,
                run=folder,
                ema=run.ema,
                process=run.schedule if run.options.declared else None,
                prediction=run.options.prediction if run.options.declared else None,
                sampler=lambda model, noise: run.sample(model, noise),
                data=run.images,
                scaler=run.scaler,
                steps=run.options.steps,
                say=lambda _: None,
            )
        except SafelightError as error:
            verdict.error, verdict.preflight = f"refused: {error}", True
            return
    try:
        for step in range(run.options.steps):
            deed.at(step)
            run.take(watch, verdict.shown)
            if watch is not None and step + 1 in LOOKS:
                look(verdict, watch.findings, step + 1)
    except Exception as error:
        verdict.error = f"{type(error).__name__}: {error}"[:500]
    if watch is not None:
        watch.close()
        look(verdict, safelight.diagnose(folder), run.step)


def look(verdict: Verdict, findings: list[Any], done: int) -> None:
    """What is said now; a cause keeps the look that first showed it."""
    verdict.findings = [
        {
            "code": found.code,
            "cause": found.cause,
            "severity": found.severity,
            "step": found.step,
            "confidence": found.confidence,
            "over": found.over,
            "summary": found.summary,
        }
        for found in findings
    ]
    for found in findings:
        if found.severity != "info":
            verdict.looks.setdefault(found.cause, done)


def _train_own(run: Own, deed: Deed, verdict: Verdict, folder: Path, watched: bool) -> tuple[list[float], list[float]]:
    from safelight import start
    from safelight.files import RunLock
    from safelight.record.reading import read_signal
    from safelight.run import create_run
    from safelight.terminal import Terminal
    from safelight.vocabulary import GRADIENT_NORM, LOSS

    run.follow(deed.at)
    if not watched:
        run.train_bare()
        return [], []
    made = create_run(folder)
    try:
        with RunLock(made.path):
            start.write_config(made, run.parts)
            start.run_training(run.parts, made, Terminal(quiet=True))
    except SafelightError as error:
        verdict.error = f"{type(error).__name__}: {error}"[:500]
        verdict.preflight = error.exit_code == 3
    look(verdict, safelight.diagnose(folder), run.step + 1)
    for found in verdict.findings:  # there was one look, at the end: a finding itself says since when
        if found["severity"] != "info":
            verdict.looks[found["cause"]] = 0 if verdict.preflight else found["step"] + 1
    if not made.record.is_file():
        return [], []
    series = [[value for _, value in read_signal(made.record, name)] for name in (LOSS.name, GRADIENT_NORM.name)]
    return series[0], series[1]
