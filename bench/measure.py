"""Fair timing: contenders take turns in one process, and the tables say how their numbers came about."""

from __future__ import annotations

import platform
import shlex
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from safelight.errors import SafelightError
from safelight.terminal import Terminal

if TYPE_CHECKING:
    from safelight.training.step_reporter import StepSummary

RESULTS = Path(__file__).parent / "results"
HOST = "safelight"
PACKAGES = ("safelight", "torch", "diffusers", "accelerate")

Block = Callable[[], object]  # trains for one block of steps


class Enough(SafelightError):
    """All rounds are measured: the run that hosted them ends here."""


def turns(names: Sequence[str], rounds: int) -> Iterator[str]:
    """Everybody once per round, the order turned round each time: a drift of the machine hits all alike."""
    for number in range(rounds):
        yield from names if number % 2 else reversed(names)


class Alternation(Terminal):
    """A screen that draws nothing: every `block` steps it stops the clock of the run and gives others their turns.

    `safelight train` itself cannot be cut into blocks, but it shows its progress after every step, and whatever the
    screen does then happens on its time, in its thread. Progress is shown about four times a second, so a block of the
    run may be longer than it should: its time is counted in proportion. The first block of everybody is for warming up.
    """

    def __init__(self, guests: Mapping[str, Block], *, block: int, rounds: int) -> None:
        super().__init__(quiet=True)
        self.seconds: dict[str, list[float]] = {name: [] for name in (HOST, *guests)}
        self._guests, self._turn = guests, block
        self._order = turns((HOST, *guests), rounds)
        self._due, self._began, self._step = block, None, 0

    def say(self, text: str) -> None:
        print(text, file=sys.stderr)

    def show(self, progress: StepSummary) -> None:
        if progress.step < self._due:
            return
        share, self._step = self._turn / (progress.step - self._step), progress.step
        self._due = progress.step + self._turn
        self._pause(share)

    def _pause(self, share: float) -> None:
        finish_saves()  # what the run still has to write is on its own bill
        synchronize()
        if self._began is None:
            for train in self._guests.values():
                train()
        else:
            self.seconds[HOST].append((time.perf_counter() - self._began) * share)
        for name in self._order:
            if name == HOST:
                self._began = time.perf_counter()
                return
            self.seconds[name].append(timed(self._guests[name]))
        raise Enough("All rounds are measured.")


def finish_saves() -> None:
    for thread in threading.enumerate():
        if thread.name == "safelight-checkpoint":
            thread.join()


def timed(train: Block) -> float:
    start = time.perf_counter()
    train()
    synchronize()
    return time.perf_counter() - start


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle of some measurements, and the half of them around it."""

    median: float
    low: float
    high: float

    def show(self, form: str) -> str:
        return f"{self.median:{form}} ({self.low:{form}} to {self.high:{form}})"


def spread(values: Sequence[float]) -> Spread:
    low, median, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return Spread(median, low, high)


def speeds(seconds: Sequence[float], images: int) -> Spread:
    """Images per second of blocks of so many images."""
    return spread([images / each for each in seconds])


def ratios(seconds: Sequence[float], others: Sequence[float]) -> Spread:
    """How fast the first is against the second, round by round: above 1 it is faster."""
    return spread([other / own for own, other in zip(seconds, others, strict=True)])


def write_table(
    name: str, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], notes: Sequence[str]
) -> Path:
    """bench/results/NAME.md: command, versions, table, and what one has to know to read it."""
    table = [columns, ["---"] * len(columns), *rows]
    lines = [
        f"# {title}",
        "",
        f"    {command()}",
        "",
        surroundings(),
        "",
        *(f"| {' | '.join(map(str, row))} |" for row in table),
        "",
        *(f"- {note}" for note in notes),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.md"
    path.write_text(text, encoding="utf-8")
    return path


def command() -> str:
    """As it was typed, with the last part of absolute paths only: where a machine keeps things is nobody's business."""
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
    return shlex.join(["python", "-m", f"bench.{Path(sys.argv[0]).stem}", *words])


def surroundings() -> str:
    versions = [f"{name} {metadata.version(name)}" for name in PACKAGES]
    return (
        f"{datetime.now(UTC):%Y-%m-%d}; Python {platform.python_version()}, {', '.join(versions)}; "
        f"{processor()}, {torch.get_num_threads()} threads."
    )


def processor() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
