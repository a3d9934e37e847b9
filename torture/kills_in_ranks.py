"""Blows at one process of several: when they fall, where they fell, and whether the others did as they should."""

from __future__ import annotations

import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from safelight.checkpoints import folder as retention
from safelight.checkpoints import manifest
from safelight.checkpoints.folder import steps as steps_on_disk
from safelight.run import RunFolder
from torture.child_run import LONGEST, REFUSED
from torture.marks import Phase
from torture.ranks import Company
from torture.scenario import Outcome

KINDS = ("start", "load", "step", "step", "save", "draw")
PATIENCE = 60.0  # train.timeout of the lives: whoever is killed is missed at once, and the machine may be busy
SOON = 6.0  # that of lives in which a process is stopped: it is given up after so many seconds
SHORT = 2.0  # that of lives whose blow falls at the very start: looking for each other may take 25 times as long
LATEST = 240.0  # seconds in which the others have to end by themselves: a store that does not answer takes 30, alone
LOST = 75  # exit code of a process that ended because another was lost, and could not tell it any more
HANG, NOT_WHOLE, UNNAMED = "hang", "is not whole", "no word of the process that is gone"
UNMET = ("could not find each other", "it did not come")  # nobody can know who is gone before all have met
SAVE, LOAD, DRAW, STEP = "inside a save", "while loading a checkpoint", "while drawing samples", "in a step"
MEETING, START, CLOSE = "before they had found each other", "starting", "closing, after the last step"
STOPPED, QUICK = "stopped instead of killed", "after which the others ended within 5 s"


@dataclass(frozen=True, slots=True)
class Blow:
    """What is done to whom, and when."""

    kind: str  # of the moment
    victims: tuple[int, ...]  # the first of them is the one whose moment is awaited
    number: int  # which step, save or drawing of this life
    delay: float  # seconds after it began
    stop: bool = False  # SIGSTOP: it hangs instead of dying

    @property
    def patience(self) -> float:
        if self.kind == "start":
            return SHORT
        return SOON if self.stop else PATIENCE

    def is_due(self, company: Company) -> bool:
        mine, first = company.marks[self.victims[0]], company.marks[0]
        reached = {
            "start": True,
            "load": mine.has_loaded,
            "step": mine.steps_begun >= self.number,
            "save": first.saves_begun >= self.number,
            "draw": mine.drawings >= 1,
        }
        return reached[self.kind]


def draw_blow(draw: random.Random, run: Path, count: int, *, stop: bool = False) -> Blow:
    """At all moments that matter, the short ones too; who is stopped has said that it lives."""
    kinds = [kind for kind in KINDS if kind != "load" or steps_on_disk(run / "checkpoints")]
    kinds = [kind for kind in kinds if not stop or kind in ("step", "draw", "save")]
    kind, victim, share = draw.choice(kinds), draw.randrange(count), draw.random()
    delay = share * 0.3 if kind == "start" else 10 ** (-4 + 2.3 * share)  # 0.1 to 20 ms
    return Blow(kind, (victim,), draw.randint(1, 3) if kind == "save" else draw.randint(1, 9), delay, stop)


@dataclass(frozen=True, slots=True)
class Struck:
    """What was to be seen when the blow fell."""

    where: str
    had_joined: bool
    newest: int  # checkpoint
    seconds: float  # until the others had ended


def strike(company: Company, blow: Blow, *, latest: float = LATEST) -> Struck | None:
    """Lets the blow fall and waits for the others to end by themselves; None if the run came to its end first."""
    limit = time.perf_counter() + LONGEST
    while not blow.is_due(company):
        if company.is_held:
            company.let_go()  # its moment does not come in this life
        time.sleep(0.0002)
        if company.look():
            _await_end(company)
            return None
        assert time.perf_counter() < limit, f"{HANG}: nothing happened for {LONGEST:.0f} s"
    time.sleep(blow.delay)
    if company.look():
        _await_end(company)
        return None
    joined = all(marks.has_joined for marks in company.marks)
    where, newest = _where(company, blow), _newest(company.run)
    company.send(signal.SIGSTOP if blow.stop else signal.SIGKILL, *blow.victims)
    company.let_go()
    began = time.perf_counter()
    others = [rank for rank in company.alive if rank not in blow.victims]
    while any(rank not in company.look() for rank in others):
        left = [rank for rank in others if rank in company.alive]
        assert time.perf_counter() - began < latest, f"{HANG}: {left} had not ended {latest:.0f} s after {where}"
        time.sleep(0.002)
    seconds = time.perf_counter() - began
    if blow.stop:  # once it wakes, it has to find out that it is alone
        company.send(signal.SIGCONT, *blow.victims)
    assert company.wait(latest), f"{HANG}: {company.alive} had not ended {latest:.0f} s after it woke"
    return Struck(where, joined, newest, seconds)


def _await_end(company: Company) -> None:
    """Of processes of which one has ended by itself."""
    assert company.wait(LATEST), f"{HANG}: {company.alive} had not ended {LATEST:.0f} s after the others"
    words = " / ".join(company.said(rank)[-300:] for rank in range(len(company.pids)))
    assert set(company.codes.values()) == {0}, f"ended with {company.codes} before anybody was struck: {words}"


def _where(company: Company, blow: Blow) -> str:
    first, mine = company.marks[0], company.marks[blow.victims[0]]
    if first.saving:
        return SAVE
    named = {Phase.LOADING: LOAD, Phase.DRAWING: DRAW, Phase.TRAINING: STEP, Phase.CLOSING: CLOSE}
    return named.get(mine.phase, START if mine.has_joined else MEETING)


def _newest(run: Path) -> int:
    return max(steps_on_disk(run / "checkpoints"), default=0)


def check_survivors(company: Company, blow: Blow, struck: Struck) -> None:
    """Each ended by itself and in words of ours, which name the one that is gone."""
    finished = RunFolder(company.run).status().get("status") == "finished"
    words = {rank: company.said(rank) for rank in company.codes if blow.stop or rank not in blow.victims}
    for rank, said in words.items():
        code = company.codes[rank]
        assert code in (REFUSED, LOST) or (code == 0 and finished), f"{rank} ended with {code}: {said[-600:]}"
        assert "Traceback" not in said, f"{rank} ended with a traceback: {said[-600:]}"
    if finished or not words:
        return
    named = any(f"Process {victim} is gone" in said for victim in blow.victims for said in words.values())
    unmet = not struck.had_joined and all(any(each in said for each in UNMET) for said in words.values())
    assert named or unmet, f"{UNNAMED} ({blow.victims}, {struck.where}): {' / '.join(words.values())[-600:]}"


def check_whole(company: Company, struck: Struck) -> None:
    for path in retention.candidates(company.run / "checkpoints"):
        assert manifest.is_whole(path), f"{path.name} {NOT_WHOLE} after {struck.where}"


def check_folder(company: Company, blow: Blow, struck: Struck) -> int:
    """All checkpoints in sight are whole, and nothing that was saved is gone; the newest step."""
    check_whole(company, struck)
    newest, first = _newest(company.run), company.marks[0]
    assert newest >= struck.newest, f"step {struck.newest} was saved, and {newest} is the newest"
    if 0 not in blow.victims and first.steps_begun:  # the first process saves before it goes
        assert newest >= first.step, f"the first process lived and stood at step {first.step}, but {newest} is saved"
    return newest


def check_start(company: Company, newest: int) -> None:
    """A life goes on where the last one was saved, neither earlier nor later."""
    first = company.marks[0]
    where = f"went on from step {first.first_step}, and {newest} was saved"
    assert not first.steps_begun or first.first_step == newest, where


def live(company: Company, blow: Blow, outcome: Outcome, newest: int) -> int | None:
    """One life, struck, judged and counted; the newest checkpoint, or None if the run came to its end."""
    try:
        struck = strike(company, blow)
        check_start(company, newest)
        if struck is None:
            return None
        check_survivors(company, blow, struck)
        newest = check_folder(company, blow, struck)
        _count(outcome, company, blow, struck, newest)
        return newest
    finally:
        company.close()


def _count(outcome: Outcome, company: Company, blow: Blow, struck: Struck, newest: int) -> None:
    first = company.marks[0]
    outcome.count += 1
    outcome.tally[struck.where] += 1
    outcome.tally[STOPPED] += blow.stop
    outcome.tally["of the first process"] += 0 in blow.victims
    outcome.tally["with signs of life kept by a process that does not train"] += company.keeper is not None
    outcome.tally[QUICK] += struck.seconds < 5
    outcome.tally["steps made again"] += max(0, first.step - newest) if first.steps_begun else 0
