"""Runs the whole test suite again and again, to find tests that fail by chance.

    make test-again N=10

Each run has a random order of tests and random examples of hypothesis. At least half of them have to share the machine:
two run at once, and where one of the two ends first, a busy loop on each core takes its place. The table is written
after every run, so a run that is broken off is not lost.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run of the suite."""

    seed: int
    is_alone: bool  # else the cores were kept busy by another run, then by loops
    seconds: float
    cpu: float  # seconds of all its processes
    passed: int
    skipped: int
    failed: tuple[str, ...]
    code: int


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    script = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"  # also ends when this process is killed
    loops = [subprocess.Popen([sys.executable, "-c", script, str(os.getpid())]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run_pair(seeds: Sequence[int], arguments: Sequence[str] = ()) -> list[Outcome]:
    """At once: no core is ever idle for either."""
    with ThreadPoolExecutor(len(seeds)) as pool:
        running = [pool.submit(run_suite, seed, arguments, is_alone=False) for seed in seeds]
        wait(running, return_when=FIRST_COMPLETED)
        with busy_loops(os.cpu_count() or 1):
            return [each.result() for each in running]


def run_suite(seed: int, arguments: Sequence[str] = (), *, is_alone: bool = True) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        command = [
            sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder",
            "--shuffle", str(seed), f"--hypothesis-seed={seed}", f"--junitxml={results}", *arguments,
        ]  # fmt: skip
        environment = os.environ | {"OMP_NUM_THREADS": "1", "HYPOTHESIS_PROFILE": "random"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as make does
        begun = time.monotonic()
        suite = subprocess.Popen(command, cwd=ROOT, env=environment)
        _, status, usage = os.wait4(suite.pid, 0)  # with the processor time of all its processes
        suite.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - begun
        cases = list(xml.parse(results).iter("testcase")) if results.exists() else []
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = [case for case in cases if case.find("skipped") is not None]
    return Outcome(
        seed, is_alone, seconds, usage.ru_utime + usage.ru_stime, len(cases) - len(failed) - len(skipped), len(skipped),
        tuple(f"{case.get('classname')}::{case.get('name')}" for case in failed), suite.returncode,
    )  # fmt: skip


def table(outcomes: Sequence[Outcome], revision: str) -> str:
    failures: dict[str, list[int]] = {}
    for outcome in outcomes:
        for name in outcome.failed:
            failures.setdefault(name, []).append(outcome.seed)
    broken = sum(outcome.code != 0 for outcome in outcomes)
    lines = [
        "# The test suite, again and again", "",
        f"`make test-again N={len(outcomes)}` at {revision}, Python {platform.python_version()}, "
        f"{os.cpu_count()} cores: **{broken} of {len(outcomes)} runs failed.**", "",
        "CPU: seconds of all processes of the suite over seconds of the clock. “Another run”: two runs of the table at",
        "once, and where one of them ended first, a busy loop on each core in its place.", "",
        "| run | seed | beside it | seconds | CPU | passed | skipped | failed |", "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for number, each in enumerate(outcomes, 1):
        beside = "nothing" if each.is_alone else "another run"
        share = each.cpu / each.seconds
        lines.append(
            f"| {number} | {each.seed} | {beside} | {each.seconds:.0f} | {share:.2f} | {each.passed:,} | "
            f"{each.skipped} | {len(each.failed)} |"
        )
    lines += ["", "## What ever failed", ""]
    lines += [f"- `{name}`: seeds {', '.join(map(str, seeds))}" for name, seeds in sorted(failures.items())] or [
        "Nothing."
    ]
    return "\n".join(lines) + "\n"


def rounds(count: int, first: int) -> Iterator[list[int]]:
    """The seeds of so many runs: alone, then two at once, by turns."""
    while count > 0:
        size = 1 if count == 1 or first % 3 == 1 else 2
        yield list(range(first, first + size))
        count, first = count - size, first + size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("-o", "--out", type=Path, default=ROOT / "tools" / "results" / "again.md")
    parser.add_argument("arguments", nargs="*", help="for pytest, after --")
    given = parser.parse_args()
    revision = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    outcomes: list[Outcome] = []
    given.out.parent.mkdir(parents=True, exist_ok=True)
    for seeds in rounds(given.runs, given.first_seed):
        alone = len(seeds) == 1
        outcomes += [run_suite(seeds[0], given.arguments)] if alone else run_pair(seeds, given.arguments)
        given.out.write_text(table(outcomes, revision))
    print(given.out.read_text())
    sys.exit(any(outcome.code for outcome in outcomes))


if __name__ == "__main__":
    main()
