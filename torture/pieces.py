"""Trials on a few cores: each in a forked process of its own, which may die or hang without taking the suite along."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torture.child_lifetime import die_with
from torture.scenario import Outcome, Scenario, Trial

LONGEST = 1500.0  # seconds that a piece may take before it counts as hung


@dataclass(frozen=True, slots=True)
class PendingReading:
    """Cases of one scenario that are tried in one process."""

    scenario: Scenario
    seed: int
    number: int
    cases: range


def cut(scenario: Scenario, seed: int, *, quick: bool) -> list[PendingReading]:
    total = scenario.quick if quick else scenario.cases
    starts = range(0, total, scenario.piece)
    return [
        PendingReading(scenario, seed, number, range(start, min(start + scenario.piece, total)))
        for number, start in enumerate(starts)
    ]


@dataclass(slots=True)
class _Running:
    piece: PendingReading
    folder: Path
    answer: Path
    began: float


def run_pieces(pieces: Sequence[PendingReading], *, jobs: int) -> Iterator[tuple[PendingReading, Outcome]]:
    """As they end. The folder of a piece that lost nothing is removed."""
    waiting, running = deque(pieces), dict[int, _Running]()
    top = Path(tempfile.mkdtemp(prefix="safelight-torture-"))
    while waiting or running:
        while waiting and len(running) < jobs:
            piece = waiting.popleft()
            folder = top / f"{piece.scenario.name}-{piece.number}".replace(" ", "-").replace(":", "")
            folder.mkdir()
            answer = folder.with_suffix(".json")
            running[_start(piece, folder, answer)] = _Running(piece, folder, answer, time.perf_counter())
        time.sleep(0.02)
        for child, each in list(running.items()):
            late = time.perf_counter() - each.began > LONGEST
            if late:
                os.kill(child, signal.SIGKILL)
            ended, status = os.waitpid(child, 0 if late else os.WNOHANG)
            if ended:
                del running[child]
                yield each.piece, _collect(each, status)
    if not any(top.iterdir()):
        top.rmdir()


def _start(piece: PendingReading, folder: Path, answer: Path) -> int:
    parent, child = os.getpid(), os.fork()
    if child:
        return child
    try:
        die_with(parent)
        os.environ["SAFELIGHT_CACHE"] = str(folder / "cache")
        found = piece.scenario.act(Trial(piece.seed, piece.cases, folder))
        answer.write_text(json.dumps(found.to_json()))
    except BaseException:
        answer.with_suffix(".log").write_text(traceback.format_exc())
    finally:
        os._exit(0)  # not the parent's clean-up, which is the parent's to do


def _collect(each: _Running, status: int) -> Outcome:
    log = each.answer.with_suffix(".log")
    if each.answer.exists():
        found = Outcome.from_json(json.loads(each.answer.read_text()))
        each.answer.unlink()
    else:
        words = log.read_text()[-800:] if log.exists() else f"it ended with {os.waitstatus_to_exitcode(status)}"
        found = Outcome(lost=[(each.piece.cases.start, f"the scenario itself broke: {words}")])
    found.seconds = time.perf_counter() - each.began
    if not found.lost or each.piece.scenario.is_control:
        shutil.rmtree(each.folder, ignore_errors=True)
        log.unlink(missing_ok=True)
    return found
