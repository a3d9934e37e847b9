"""SIGKILL at random moments: a run that is killed and resumed again and again must end with the same bytes."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from bench.measure import write_table
from bench.sitting import BREAKS, NETWORKS, Marks, Phase, ended, start
from safelight.config import Config
from safelight.config.resolve import resolve
from safelight.run import RunFolder
from safelight.train.checkpoint import steps as steps_on_disk

STEPS, EVERY = 60, 5
IMAGES, SIDE = 44, 8  # 5.5 batches: nearly every checkpoint lies in the middle of an epoch, some batches span two
LONGEST = 120.0  # seconds that a sitting may take before it counts as hung
MOST_KILLS = 12  # of one run; then it is left alone to finish
WHOLE, OTHER_BYTES = "whole", "other bytes"


def make_images(folder: Path) -> None:
    """Two classes of small colour pictures."""
    draw = np.random.default_rng(0)
    for number in range(IMAGES):
        path = folder / f"class_{number % 2}" / f"{number:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)).save(path)


def configure(images: Path) -> Config:
    """Small, and with everything that has a state or is random: labels, flips, dropout, adaptive clipping, EMA."""
    return resolve(
        settings={
            "data.source": str(images),
            "data.image_size": SIDE,
            "data.flip": True,
            "model.widths": (16,),
            "model.layers": 1,
            "model.attention": (),
            "model.norm_groups": 8,
            "model.dropout": 0.1,
            "model.conditional": True,
            "clipping.kind": "adaptive",
            "ema.snapshots": 4,
            "train.steps": STEPS,
            "train.preflight": "off",  # it finds the broken builds by itself, before anything can be killed
            "train.batch_size": 8,
            "train.accumulate": 2,
            "train.device": "cpu",
            "train.threads": 1,
            "checkpoint.every": EVERY,
            "sample.every": 25,
            "sample.count": 2,
            "sample.steps": 2,
        }
    )


@dataclass(frozen=True, slots=True)
class Aim:
    """When to strike."""

    kind: str  # anywhere, load or save
    save: int  # which save of the sitting
    delay: float  # seconds after the start, the load or the save began

    def reached(self, marks: Marks) -> bool:
        if self.kind == "load":
            return marks.phase == Phase.LOADING
        return self.kind == "anywhere" or marks.saves_begun >= self.save


def draw_aim(draw: random.Random, run: Path, seconds: float) -> Aim:
    """Half of the blows fall anywhere; the others are aimed at the short moments that matter most."""
    kinds = ["anywhere"] * 5 + ["save"] * 3 + ["load"] * 2
    kind, save, share = draw.choice(kinds), draw.randint(1, 3), draw.random()
    if kind == "anywhere" or (kind == "load" and not steps_on_disk(run / "checkpoints")):
        return Aim("anywhere", save, share * seconds)
    return Aim(kind, save, 10 ** (-4 + 2.3 * share))  # 0.1 to 20 ms


@dataclass(slots=True)
class Outcome:
    """What came of it all."""

    kills: int = 0
    runs: int = 0
    equal: int = 0
    sittings: int = 0
    left_behind: int = 0  # kills after which an unfinished checkpoint lay on the disk
    phases: dict[str, int] = field(default_factory=dict)  # where the blows fell
    reference: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def sha256(self) -> str:
        return hashlib.sha256(json.dumps(self.reference, sort_keys=True).encode()).hexdigest()


class Torture:
    """Runs in a folder that are killed, resumed, and compared with one that was left alone."""

    def __init__(self, folder: Path, *, network: str, seed: int, workers: list[int], broken: str | None) -> None:
        self.folder, self.network, self.seed, self.workers, self.broken = folder, network, seed, workers, broken
        self.marks, self.outcome = Marks(), Outcome()
        self.config = configure(folder / "images")
        if not (folder / "images").exists():
            make_images(folder / "images")

    def go(self, kills: int, *, only: int | None = None) -> Outcome:
        """Until there were so many kills; `only` replays one run of a seed."""
        began = time.perf_counter()
        whole = self._place("reference")
        before = time.perf_counter()
        self._finish(whole, self.workers[0])
        self._length = time.perf_counter() - before
        self.outcome.reference = fingerprint(whole)
        for number in range(kills) if only is None else [only]:
            self._run(number, kills)
            if self.outcome.kills >= kills or (self.outcome.failures and not self.broken):
                break
        self.outcome.seconds = time.perf_counter() - began
        return self.outcome

    def _place(self, name: str) -> Path:
        return self.folder / (f"{self.broken}-{name}" if self.broken else name)

    def _run(self, number: int, kills: int) -> None:
        run, draw = self._place(f"run-{number:04d}"), random.Random(f"{self.seed}/{number}")
        before, budget = self.outcome.kills, min(MOST_KILLS, kills - self.outcome.kills)
        try:
            while budget and self._strike(run, self._aim(draw, run), draw.choice(self.workers)):
                budget -= 1
            if not budget:
                self._finish(run, draw.choice(self.workers))
        except AssertionError as error:
            self.outcome.runs += 1
            self.outcome.failures.append(f"run {number}: {error}")
            return
        if self.outcome.kills == before:
            return  # every blow came too late: this run proves nothing
        self.outcome.runs += 1
        other = differing(self.outcome.reference, fingerprint(run))
        if other:
            self.outcome.failures.append(f"run {number}: {OTHER_BYTES} in {', '.join(other)}")
        else:
            self.outcome.equal += 1
            shutil.rmtree(run)

    def _aim(self, draw: random.Random, run: Path) -> Aim:
        if self.broken:  # sick only where it resumes, and the EMA soon forgets: not in the first saves
            return Aim("save", 5, draw.random() * 0.01)
        return draw_aim(draw, run, self._length)

    def _strike(self, run: Path, aim: Aim, workers: int) -> bool:
        """One sitting, ended by a SIGKILL; False if it came to its end first."""
        child = self._start(run, workers)
        status, limit = None, time.perf_counter() + LONGEST
        while status is None and not aim.reached(self.marks):
            status = ended(child, 0.0002)
            assert time.perf_counter() < limit or self._end(child), f"a sitting hung for {LONGEST:.0f} s"
        status = ended(child, aim.delay) if status is None else status
        if status is None:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            self._check(run, status)
            return False
        self._count(run)
        return True

    def _finish(self, run: Path, workers: int) -> None:
        child = self._start(run, workers)
        status = ended(child, LONGEST)
        assert status is not None or self._end(child), f"a sitting hung for {LONGEST:.0f} s"
        self._check(run, status)

    def _start(self, run: Path, workers: int) -> int:
        self.outcome.sittings += 1
        log = run.with_suffix(".log")
        model = NETWORKS[self.network]
        return start(run, self.config, model, workers=workers, marks=self.marks, broken=self.broken, log=log)

    def _end(self, child: int) -> bool:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return False

    def _check(self, run: Path, status: int | None) -> None:
        code = None if status is None else os.waitstatus_to_exitcode(status)
        said = run.with_suffix(".log").read_text()[-2000:]
        assert code == 0, f"a sitting ended with {code}; it said: {said}"
        assert RunFolder(run).status().get("status") == "finished", f"a sitting ended before the run did: {said}"

    def _count(self, run: Path) -> None:
        """After the death: the marks stand still."""
        self.outcome.kills += 1
        folder = run / "checkpoints"
        self.outcome.left_behind += any(folder.glob(".tmp-*"))
        where = describe(self.marks, saved=bool(steps_on_disk(folder)))
        self.outcome.phases[where] = self.outcome.phases.get(where, 0) + 1


def describe(marks: Marks, *, saved: bool) -> str:
    if marks.saving:
        return "inside a save"
    if marks.phase == Phase.LOADING:
        return "while loading a checkpoint"
    if marks.phase == Phase.CLOSING:
        return "closing, after the last step"
    where = "training" if marks.phase == Phase.TRAINING else "starting"
    return where if saved else f"{where}, before the first checkpoint"


def fingerprint(run: Path) -> dict[str, str]:
    """sha256 of everything that must not depend on when a run was killed."""
    last = run / "checkpoints" / f"step_{STEPS:08d}"
    files = [*last.glob("*.safetensors"), *run.glob("ema/step_*/*.safetensors"), *run.glob("samples/step_*.png")]
    found = {str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    state = json.loads((last / "state.json").read_bytes())
    # These know the clock: a save that comes while the one before is being written is left out, and so is its probe.
    plain = {name: value for name, value in state.items() if name not in ("seconds", "best_step", "best_loss")}
    found["state.json"] = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
    return dict(sorted(found.items()))


def differing(one: dict[str, str], other: dict[str, str]) -> list[str]:
    names = [name for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name)]
    return names if len(names) <= 3 else [*names[:3], f"{len(names) - 3} more"]


def torture(
    kills: int,
    *,
    folder: Path,
    network: str = "unet",
    seed: int = 0,
    workers: tuple[int, ...] = (0, 4),
    broken: str | None = None,
    only: int | None = None,
) -> Outcome:
    """So many kills over as many runs as it takes. The process must not have computed anything with torch before."""
    # A broken seed draws from one generator: two loader threads would draw in any order.
    drawn = [0] if broken else [*workers]
    return Torture(folder, network=network, seed=seed, workers=drawn, broken=broken).go(kills, only=only)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="kills in all; 0: only the controls")
    parser.add_argument("--seed", type=int, default=0, help="of the moments to strike")
    parser.add_argument("--only", type=int, help="replay one run of this seed")
    parser.add_argument("--network", choices=NETWORKS, default="unet", help="a U-Net, or a few layers to save time")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 4], help="loader workers, drawn per sitting")
    parser.add_argument("--break", dest="broken", nargs="*", choices=BREAKS, default=[*BREAKS], help="the controls")
    parser.add_argument("--break-kills", type=int, default=3, help="kills of each control")
    parser.add_argument("--json", action="store_true", help="the outcome as JSON on stdout, and no table")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="safelight-kills-"))
    outcomes = strike_all(options, folder)
    if options.json:
        print(json.dumps({name: asdict(outcome) for name, outcome in outcomes.items()}))
    else:
        report(outcomes)
    if not all(is_as_wanted(name, outcome) for name, outcome in outcomes.items()):
        print(f"Not as wanted. What is left of the runs: {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0


def strike_all(options: argparse.Namespace, folder: Path) -> dict[str, Outcome]:
    named, outcomes = {"folder": folder, "network": options.network, "seed": options.seed}, {}
    if options.kills:
        outcomes[WHOLE] = torture(options.kills, workers=tuple(options.workers), only=options.only, **named)
    for name in options.broken:
        outcomes[name] = torture(options.break_kills, broken=name, **named)
    return outcomes


def is_as_wanted(name: str, outcome: Outcome) -> bool:
    """A whole build never differs, a broken one always does, and in bytes: not because it crashed."""
    if name == WHOLE:
        return outcome.kills > 0 and not outcome.failures
    return outcome.runs > 0 == outcome.equal and all(OTHER_BYTES in failure for failure in outcome.failures)


def report(outcomes: dict[str, Outcome]) -> None:
    columns = ["build", "kills", "runs", "ended with the same bytes", "what differed", "sha256 of the run left alone"]
    rows = [
        [
            name,
            outcome.kills,
            outcome.runs,
            f"{outcome.equal} of {outcome.runs}",
            outcome.failures[0] if outcome.failures else "nothing",
            f"{outcome.sha256[:16]}…",
        ]
        for name, outcome in outcomes.items()
    ]
    blows = [describe_blows(outcomes[WHOLE])] if WHOLE in outcomes else []
    write_table("kills", "Killed and resumed", columns, rows, blows + NOTES)


def describe_blows(outcome: Outcome) -> str:
    share = ", ".join(f"{phase} {count}" for phase, count in sorted(outcome.phases.items(), key=lambda pair: -pair[1]))
    return (
        f"Where the {outcome.kills} blows fell: {share}. After {outcome.left_behind} of them an unfinished checkpoint "
        f"lay on the disk. {outcome.seconds / max(1, outcome.kills):.2f} s per kill."
    )


NOTES = [
    f"A run: {STEPS} steps of batch 8 in 2 micro-batches, checkpoint every {EVERY}, {IMAGES} images (5.5 steps an "
    "epoch), conditional, with dropout, flips and adaptive clipping. Every sitting draws its number of loader workers.",
    "Compared: every safetensors file of the last checkpoint and of the EMA snapshots, the counters, the pictures. The "
    "sha256 is over the list of theirs.",
    "The broken builds are the control, and have to differ: `seed` draws noise from a generator that begins anew with "
    "each process, `optimizer` forgets the moments at resume, `ema` the averages.",
    "A seed fixes what is aimed at and how long is waited, not the clock. `--seed S --only N --break` replays run N.",
]


if __name__ == "__main__":
    sys.exit(main())
