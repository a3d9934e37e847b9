"""What recording costs, how fast a million steps are read, whether anything is hidden, and what a SIGKILL takes."""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.measure import spread, write_table
from safelight.record.chunk_writer import width
from safelight.record.history import History, open_history
from safelight.record.store import RecordWriter
from safelight.record.zoom import Zoom

SIGNALS = tuple(f"area/signal_{number:02d}" for number in range(50))
WINDOW = 64
SPIKE = 100.0  # among normal numbers
WANTED_MICROSECONDS, WANTED_LOST = 30.0, 1.0
LONGEST_SITTING = 1000  # steps, about a second of them
PATIENCE = 300.0  # seconds for them on a busy machine
PIXELS = 1000
Row = list[object]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything."""

    steps: int = 1_000_000
    timed: int = 3000  # steps of which the cost is measured
    injected: int = 1000  # spikes, and as many NaN
    kills: int = 100


QUICK = Sizes(steps=20_000, timed=100, injected=100, kills=3)


def measure_cost(folder: Path, steps: int) -> dict[str, list[float]]:
    """Microseconds per step on the training thread, at a thousand steps a second and with the writer at work."""
    found: dict[str, list[float]] = {}
    numbers = np.random.default_rng(0).normal(size=(steps, len(SIGNALS))).astype(np.float32)
    lines = [dict(zip(SIGNALS, line, strict=True)) for line in numbers.tolist()]
    for window in (1, 16):
        record = RecordWriter(folder / f"cost_{window}.sqlite", from_step=0, say=fail)
        spent = []
        for step in range(0, steps, window):
            time.sleep(0.001 * window)
            places, part = np.arange(step, step + window), numbers[step : step + window]
            begun = time.perf_counter_ns()
            if window == 1:
                record.add(step, lines[step])
            else:
                record.add_window(places[: len(part)], SIGNALS, part)
            spent.append((time.perf_counter_ns() - begun) / 1000 / window)
        record.close()
        found["add, every step" if window == 1 else f"add_window, {window} steps at once"] = spent
    return found


@dataclass(frozen=True, slots=True)
class Injected:
    """What must never be hidden: (signal, step) of each."""

    spikes: list[tuple[str, int]]
    holes: list[tuple[str, int]]


def fill(path: Path, sizes: Sizes) -> tuple[Injected, float]:
    """A long run with spikes and NaN at random places, and the seconds until all is stored."""
    draw = np.random.default_rng(1)
    places = draw.choice(sizes.steps * len(SIGNALS), 2 * sizes.injected, replace=False)
    spots = [(SIGNALS[place % len(SIGNALS)], place // len(SIGNALS)) for place in places.tolist()]
    values = np.array([SPIKE, -SPIKE] * (sizes.injected // 2) + [np.nan] * sizes.injected, np.float32)
    order = np.argsort(places)
    places, values = places[order], values[order]
    record = RecordWriter(path, from_step=0, say=fail)
    begun = time.perf_counter()
    for start in range(0, sizes.steps, WINDOW):
        steps = np.arange(start, min(start + WINDOW, sizes.steps))
        part = draw.normal(size=(len(steps), len(SIGNALS))).astype(np.float32)
        low, high = np.searchsorted(places, [start * len(SIGNALS), (start + len(steps)) * len(SIGNALS)])
        part.reshape(-1)[places[low:high] - start * len(SIGNALS)] = values[low:high]
        record.add_window(steps, SIGNALS, part)
        if start % (WINDOW * 100) == 0:
            record.flush(wait=True)  # faster than any training: the backlog would overflow
    record.close()
    return Injected(spots[: sizes.injected], spots[sizes.injected :]), time.perf_counter() - begun


def fail(words: str) -> None:
    raise AssertionError(words)


def survivors(history: History, injected: Injected, pixels: int, first: int = 0) -> tuple[int, int]:
    """Spikes and NaN that are seen in the spans they lie in."""
    zooms = {signal: history.zoom(signal, first, pixels=pixels) for signal in SIGNALS}
    spikes = sum(is_spike(zooms[signal], step) for signal, step in injected.spikes)
    holes = sum(are_counted(zooms[signal], [s for n, s in injected.holes if n == signal]) for signal in SIGNALS)
    return spikes, holes


def place_of(zoom: Zoom, step: int) -> int:
    place = int(np.searchsorted(zoom.first, step, "right")) - 1
    assert zoom.first[place] <= step <= zoom.last[place], f"step {step} is in no span"
    return place


def is_spike(zoom: Zoom, step: int) -> bool:
    place = place_of(zoom, step)
    return bool(max(zoom.high[place], -zoom.low[place]) == SPIKE)


def are_counted(zoom: Zoom, steps: list[int]) -> int:
    """Exactly these, in their spans and in no others."""
    wanted = np.bincount([place_of(zoom, step) for step in steps], minlength=len(zoom))
    return len(steps) if np.array_equal(wanted, zoom.nonfinite) else int(np.minimum(wanted, zoom.nonfinite).sum())


def timed(work: Callable[[], object], times: int = 20) -> list[float]:
    """Milliseconds."""
    seconds = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        seconds.append((time.perf_counter() - begun) * 1000)
    return seconds


WRITER = """
import os, struct, sys, time
from pathlib import Path
from safelight.record.store import RecordWriter
path, log, start, sitting = Path(sys.argv[1]), os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND), *map(int, sys.argv[3:])
record = RecordWriter(path, from_step=start, say=lambda words: os.write(2, words.encode()))
names = [f"signal_{number}" for number in range(20)]
for step in range(start, start + 100_000):
    record.add(step, {"step": step, "sitting": sitting, **dict.fromkeys(names, 0.5)})
    os.write(log, struct.pack("d", time.monotonic()))
    time.sleep(0.0005)
"""


@dataclass(slots=True)
class Kills:
    """What became of a record whose writers were killed one after the other."""

    kills: int = 0
    steps: int = 0  # that the writers handed over
    lost: list[float] = field(default_factory=list)  # seconds
    doubled: int = 0
    wrong: list[str] = field(default_factory=list)


def kill_writers(folder: Path, kills: int, seed: int = 0) -> Kills:
    """Each writer takes the record up at a random step that the one before left, and dies after a random number of
    steps; one in five at a random moment, which may be before its first."""
    draw, found, path = random.Random(seed), Kills(), folder / "killed.sqlite"
    expected: list[int] = []  # which sitting each step was written by
    for sitting in range(1, kills + 1):
        start = draw.randint(len(expected) // 2, len(expected))
        log = folder / "log"
        log.write_bytes(b"")
        words = [sys.executable, "-c", WRITER, str(path), str(log), str(start), str(sitting)]
        child = subprocess.Popen(words, env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE)
        if sitting % 5:
            await_steps(log, draw.randint(1, LONGEST_SITTING), child)
        else:
            time.sleep(0.4 * draw.random())
        struck = time.monotonic()
        child.kill()
        _, said = child.communicate()
        found.kills += 1
        times = np.frombuffer(log.read_bytes()[: log.stat().st_size // 8 * 8])
        found.steps += len(times)
        expected = judge(found, path, expected, start, sitting, times, struck)
        found.wrong += [said.decode()] if said else []
    return found


def await_steps(log: Path, steps: int, child: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE
    while log.stat().st_size < 8 * steps:
        assert child.poll() is None, "the writer ended by itself"
        assert time.monotonic() < until, f"fewer than {steps} steps within {PATIENCE:g} s"
        time.sleep(0.002)


def judge(
    found: Kills, path: Path, before: list[int], start: int, sitting: int, times: np.ndarray, struck: float
) -> list[int]:
    """Reads the record after a kill; what is in it now."""
    if not path.exists():
        return []
    try:
        with open_history(path) as history:
            steps, sittings = (history.raw(name)[1].astype(int).tolist() for name in ("step", "sitting"))
            spans = history.zoom("step", pixels=4)
    except Exception as error:
        if not before and "nothing was written" in str(error):
            return []
        found.wrong.append(f"sitting {sitting}: {error}")
        return before
    found.doubled += len(steps) - len(set(steps))
    if steps != list(range(len(steps))) or len(sittings) != len(steps) or spans.count.sum() != len(steps):
        found.wrong.append(f"sitting {sitting}: steps are missing, or rollups differ from readings")
    cut = sittings[:start] == before[:start] and set(sittings[start:]) <= {sitting}
    if sittings != before and not cut:
        found.wrong.append(f"sitting {sitting}: what was written before is not as it was")
    kept = len(steps) - start if cut else 0  # or it died before it cut anything
    if kept < len(times):
        found.lost.append(struck - float(times[kept]))
    return sittings


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a little of everything, to see whether it works")
    sizes = QUICK if parser.parse_args(words).quick else Sizes()
    with tempfile.TemporaryDirectory() as folder:
        rows, good = measure(Path(folder), sizes)
    columns = ["what", "found", "wanted"]
    write_table("record", "What recording costs and keeps", columns, rows, notes_on(sizes))
    return 0 if good else 1


def measure(folder: Path, sizes: Sizes) -> tuple[list[Row], bool]:
    costs = {name: spread(each) for name, each in measure_cost(folder, sizes.timed).items()}
    wanted = f"at most {WANTED_MICROSECONDS:g} µs"
    rows: list[Row] = [
        [f"training thread, 50 signals, {name}", f"{cost.show('.2f')} µs per step", wanted]
        for name, cost in costs.items()
    ]
    path = folder / "record.sqlite"
    injected, seconds = fill(path, sizes)
    what = f"{sizes.steps:,} steps x 50 signals"
    rows.append([f"{what}: on the disk", f"{path.stat().st_size / 1e6:,.1f} MB", ""])
    rows.append([f"{what}: the numbers alone, as float32", f"{sizes.steps * 50 * 4 / 1e6:,.1f} MB", ""])
    rows.append([f"{what}: writing all, as fast as it goes", f"{seconds:.1f} s", ""])
    rows.append(
        [f"{what}: opening and listing signals", f"{spread(timed(lambda: list_signals(path))).show('.2f')} ms", ""]
    )
    with open_history(path) as history:
        rows += zoom_rows(history, sizes)
        found, whole = survivor_rows(history, injected, sizes)
    killed = kill_writers(folder, sizes.kills)
    rows += found + kill_rows(killed)
    good = whole and not killed.wrong and not killed.doubled and max(killed.lost, default=0) <= WANTED_LOST
    return rows, good and all(cost.median <= WANTED_MICROSECONDS for cost in costs.values())


def list_signals(path: Path) -> None:
    with open_history(path) as history:
        history.signals()


def zoom_rows(history: History, sizes: Sizes) -> list[Row]:
    rows: list[Row] = []
    for name, share in (("all steps", 1), ("a tenth", 10), ("a thousandth", 1000)):
        first = sizes.steps // 3 if share > 1 else 0
        last = first + sizes.steps // share - 1
        signals = iter(SIGNALS)
        spent = timed(lambda f=first, t=last, s=signals: history.zoom(next(s), f, t, pixels=PIXELS))
        spans = len(history.zoom(SIGNALS[0], first, last, pixels=PIXELS))
        rows.append(
            [f"one zoom of {name} to {PIXELS:,} pixels", f"{spread(spent).show('.2f')} ms, {spans:,} spans", ""]
        )
    return rows


def survivor_rows(history: History, injected: Injected, sizes: Sizes) -> tuple[list[Row], bool]:
    """At every zoom there is, from single steps to the whole run in a handful of spans."""
    rows, whole = list[Row](), True
    spans = [1, 4, 16, *(width(level) for level in range(20) if width(level) * 2 < sizes.steps)]
    for steps in spans:
        spikes, holes = survivors(history, injected, sizes.steps // steps)
        whole &= spikes == holes == sizes.injected
        wanted = f"{sizes.injected:,} and {sizes.injected:,}"
        rows.append([f"single spikes and NaN seen, {steps:,} steps to a span", f"{spikes:,} and {holes:,}", wanted])
    return rows, whole


def kill_rows(killed: Kills) -> list[Row]:
    lost = f"{max(killed.lost, default=0):.2f} s at most, {np.median(killed.lost or [0]):.2f} s in the median"
    return [
        [f"{killed.kills} SIGKILLs over {killed.steps:,} steps: lost", lost, f"at most {WANTED_LOST:g} s"],
        [f"{killed.kills} SIGKILLs: steps that stand twice", killed.doubled, 0],
        [f"{killed.kills} SIGKILLs: records that do not open, or are not as they were", len(killed.wrong), 0],
    ]


def notes_on(sizes: Sizes) -> list[str]:
    return [
        "Medians, with the quartiles in brackets. Files are in the page cache.",
        f"Training thread: {sizes.timed:,} steps at a thousand a second, while the writer thread stores them.",
        f"Zooms: of {PIXELS:,} pixels, another signal each time, 20 times.",
        f"Spikes and NaN: {sizes.injected:,} of each at random steps of random signals, among normal numbers. A spike "
        "is seen if it is the lowest or highest of its span, a NaN if the span counts it.",
        "Kills: one record, taken up again each time at a random earlier step; 22 signals, about a thousand steps a "
        f"second, killed after 1 to {LONGEST_SITTING:,} of them, every fifth within 0.4 s after the process began. "
        "Lost: from the first step that is not in the record to the blow.",
    ]


if __name__ == "__main__":
    sys.exit(main())
