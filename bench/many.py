"""How soon a list of a thousand runs and a page of hundreds of signals can be read: two parts of bench.dashboard."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from safelight.pages.data.runs import describe
from safelight.record.store import RecordWriter
from safelight.run import RunFolder

RUNS, SIGNALS, STEPS = 1000, 400, 5000
OPENINGS = 5  # of each page
Serve = Callable[[Path], AbstractContextManager[int]]


def make_runs(root: Path, count: int) -> None:
    """Copies of one small run that ended, each with a time of its own."""
    first = make_run(root / "run-0000", 12, 300)
    for number in range(1, count):
        folder = RunFolder(root / f"run-{number:04d}")
        shutil.copytree(first.path, folder.path)
        folder.update_status(created=time.time() - 60 * number)


def make_run(path: Path, signals: int, steps: int) -> RunFolder:
    folder, draw = RunFolder(path), np.random.default_rng(0)
    path.mkdir(parents=True)
    record = RecordWriter(folder.record, from_step=0, say=print)
    names = ("loss/mean", *(f"mine/signal_{number:03d}" for number in range(signals - 1)))
    for start in range(0, steps, 500):
        places = np.arange(start, min(start + 500, steps))
        record.add_window(places, names, np.abs(draw.normal(size=(len(places), signals))).astype(np.float32))
    record.close()
    folder.config.write_text("train:\n  batch_size: 32\n")
    folder.update_status(status="finished", step=steps, steps=steps, created=time.time())
    return folder


def measure_list(browser: Any, root: Path, serve: Serve, count: int) -> list[float]:
    """Milliseconds from the request of the page to the last row; also at the first look, before records were read."""
    make_runs(root, count)
    with serve(root) as port:
        rows = f"document.querySelectorAll('.run-row').length === {count}"
        return [open_until(browser, f"http://localhost:{port}/#/", rows) for _ in range(OPENINGS)]


def measure_signals(browser: Any, root: Path, serve: Serve, signals: int) -> list[float]:
    """Milliseconds from the request of the tab to the first charts on it, with every signal listed."""
    folder = make_run(root / "run", signals, STEPS)
    drawn = "[...document.querySelectorAll('.signal-cell .legend b')].some((each) => /\\d/.test(each.textContent))"
    listed = f"document.querySelectorAll('.signal-cell').length === {signals}"
    with serve(root) as port:
        place = f"http://localhost:{port}/#/run/{describe(folder.path).id}/signals"
        return [open_until(browser, place, f"{listed} && {drawn}") for _ in range(OPENINGS)]


def open_until(browser: Any, address: str, shown: str) -> float:
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.goto(address, wait_until="commit")
    until = time.monotonic() + 120
    while not page.evaluate(shown):
        assert time.monotonic() < until, f"never came to hold: {shown}"
        page.wait_for_timeout(10)
    spent = page.evaluate("performance.now()")
    context.close()
    return spent
