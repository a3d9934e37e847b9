"""Many trials on a few cores: each in a process of its own, so that nothing that was patched outlives it."""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from gauntlet.archive import keep
from gauntlet.scenario import Scenario, Verdict
from gauntlet.score import alarms
from gauntlet.trial import run_training


def carry_out_all(
    scenarios: Sequence[Scenario],
    *,
    jobs: int = 2,
    watched: bool = True,
    archive: Path | None = None,
    say: Callable[[str], None] | None = None,
) -> list[Verdict]:
    """In the order of the scenarios. `archive`: where their records are kept."""
    torch.set_num_threads(1)  # before the fork: a pool of threads does not survive one
    _import_slow_modules()
    found: list[Verdict] = []
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        for verdict in pool.imap(functools.partial(_carry_out, watched, archive), scenarios, chunksize=1):
            found.append(verdict)
            if say is not None:
                say(_line(verdict, len(found), len(scenarios)))
    return found


def _carry_out(watched: bool, archive: Path | None, scenario: Scenario) -> Verdict:
    return run_training(scenario, watched=watched, keep=None if archive is None else functools.partial(keep, archive))


def _import_slow_modules() -> None:
    """Once, in the parent: diffusers takes seconds."""
    import diffusers.models.unets.unet_2d
    import diffusers.schedulers.scheduling_ddim
    import diffusers.schedulers.scheduling_ddpm
    import diffusers.training_utils  # noqa: F401

    import safelight.start  # noqa: F401
    from gauntlet.bases.plain import digits

    digits()


def _line(verdict: Verdict, number: int, of: int) -> str:
    said = ", ".join(f"{seen['cause']}@{seen['step']}" for seen in alarms(verdict)) or "nothing"
    measured = " ".join(f"{name}={value:.3g}" for name, value in verdict.metrics.items())
    loss = "" if verdict.loss is None else f"loss {verdict.loss[0]:.3g} to {verdict.loss[1]:.3g}"
    error = f" !! {verdict.error[:160]}" if verdict.error else ""
    head = f"[{number}/{of}] {verdict.seconds:.1f} s {verdict.base} {verdict.kind} {verdict.id} #{verdict.seed}"
    return f"{head}: {said} | {loss} {measured}{error}"
