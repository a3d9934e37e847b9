"""How fast the dashboard shows a run of a million steps, how soon a new number is a pixel, and what ten tabs cost.

    python -m bench.dashboard             # a quarter of an hour, on a quiet machine with Chromium
    python -m bench.dashboard --quick     # a little of everything, to see whether it works
    python -m bench.dashboard --only page # one part at a time, where a machine is shared

Without Chromium only the server is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench import many
from bench.measure import RESULTS, Spread, spread, write_table
from bench.tabs import TABS, Cost, Pages, Streams, measure_lookers, open_window
from safelight.pages.data.runs import describe
from safelight.record.store import RecordWriter
from safelight.run import RunFolder

LEVELS = tuple(f"loss/level/{level:02d}" for level in range(16))
PARTS = tuple(f"gradient/part/block_{number:02d}" for number in range(24))
SIGNALS = ("loss/mean", "loss/whitened", "optimizer/lr", "gradient/norm", "gradient/limit", "ema/decay", "speed/images",
           "speed/left", "system/memory", "update/refused", *LEVELS, *PARTS)  # fmt: skip
DRAWN = ("loss/mean", "loss/whitened", "optimizer/lr", "gradient/norm", "gradient/limit", "speed/images")
WINDOW, PIXELS = 64, 900
COLD, WARM, ZOOM, PIXEL, SLOWDOWN = 2000.0, 500.0, 200.0, 1000.0, 1.01  # ms, and a factor
MANY = 1000.0  # ms
Row = list[object]

# Notes when curves are painted, and when numbers came: by questions, and by the stream.
SPY = """
window.bench = {paints: [], answers: [], deltas: []};
const now = () => performance.timeOrigin + performance.now();
let points = 0;
const prototype = CanvasRenderingContext2D.prototype;
for (const name of ["lineTo", "fillRect"]) {
  const original = prototype[name];
  prototype[name] = function (...words) { points += 1; return original.apply(this, words); };
}
// While a run grows, only the end of a curve is painted: `least` is lowered, and the first chart alone is looked at.
window.bench.least = 20;
const note = (place) => {
  if (points <= bench.least || place.canvas.classList.contains("overlay")) return;
  if (!bench.least && place.canvas !== document.querySelector("figure.chart .plot canvas")) return;
  bench.paints.push(now());
  points = 0;
};
const stroke = prototype.stroke;
prototype.stroke = function (...words) { const found = stroke.apply(this, words); note(this); return found; };
const ask = window.fetch;
window.fetch = async (...words) => {
  const answer = await ask(...words);
  if (String(words[0]?.url ?? words[0]).includes("/series")) bench.answers.push(now());
  return answer;
};
const Original = window.EventSource;
window.EventSource = class extends Original {
  constructor(...words) {
    super(...words);
    super.addEventListener("delta", (event) => bench.deltas.push([now(), JSON.parse(event.data).cursor]));
  }
};
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything."""

    steps: int = 1_000_000
    cold: int = 5
    zooms: int = 200
    readings: int = 60  # that are followed to the screen
    rounds: int = 12
    seconds: float = 5.0  # of a block of training
    runs: int = many.RUNS
    signals: int = many.SIGNALS


QUICK = Sizes(steps=20_000, cold=2, zooms=20, readings=6, rounds=3, seconds=0.6, runs=30, signals=60)


@dataclass(frozen=True, slots=True)
class Found:
    """A row of the table, and whether it is as wanted."""

    row: Row
    good: bool = True


def fill(folder: RunFolder, steps: int) -> None:
    """A run that looks like one: a loss that falls, with noise; other signals at random."""
    folder.path.mkdir(parents=True)
    draw, record = np.random.default_rng(0), RecordWriter(folder.record, from_step=0, say=fail)
    for start in range(0, steps, WINDOW):
        places = np.arange(start, min(start + WINDOW, steps))
        part = np.abs(draw.normal(size=(len(places), len(SIGNALS)))).astype(np.float32)
        part[:, 0] = 0.1 + np.exp(-places / steps * 4) * (1 + 0.1 * part[:, 0])
        record.add_window(places, SIGNALS, part)
        if start % (WINDOW * 100) == 0:
            record.flush(wait=True)  # faster than any training: the backlog would overflow
    record.close()
    folder.config.write_text("train:\n  batch_size: 32\n")
    folder.update_status(status="finished", step=steps, steps=steps, created=time.time() - 3600)


def fail(words: str) -> None:
    raise AssertionError(words)


@contextlib.contextmanager
def serve(root: Path) -> Iterator[int]:
    """A dashboard in a process of its own, with the priority it has beside a training."""
    command = [sys.executable, "-m", "safelight", "dashboard", str(root), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            os.setpriority(os.PRIO_PROCESS, process.pid, 10)
            assert process.stdout is not None
            found = re.search(r":(\d+)/", process.stdout.readline())
            assert found, "the dashboard did not say where it is"
            yield int(found[1])
        finally:
            process.terminate()


def ask(port: int, address: str) -> float:
    """Milliseconds until the whole answer is there."""
    begun = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("GET", address)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert answer.status == 200, f"{address} gave {answer.status}"
    return (time.perf_counter() - begun) * 1000


def drop_from_memory(folder: Path) -> None:
    """The next reader has to fetch the files from the disk."""
    for path in folder.iterdir():
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def windows(steps: int, count: int) -> Iterator[tuple[int, int]]:
    """Parts of a run as a person looks at them: from a hundred steps to half of it, anywhere."""
    draw = np.random.default_rng(2)
    for _ in range(count):
        width = int(np.exp(draw.uniform(np.log(100), np.log(steps / 2))))
        first = int(draw.integers(0, steps - width))
        yield first, first + width


def measure_server(folder: RunFolder, sizes: Sizes) -> list[Found]:
    run, names = describe(folder.path).id, ",".join(DRAWN)
    whole = f"/api/runs/{run}/series?signals={names}&pixels={PIXELS}"
    cold = []
    for _ in range(sizes.cold):
        drop_from_memory(folder.path)
        with serve(folder.path) as port:
            cold.append(ask(port, "/") + ask(port, f"/api/runs/{run}") + ask(port, whole))
    with serve(folder.path) as port:
        ask(port, whole)
        warm = [ask(port, f"/api/runs/{run}") + ask(port, whole) for _ in range(20)]
        zooms = [ask(port, f"{whole}&first={a}&last={b}") for a, b in windows(sizes.steps, sizes.zooms)]
        smooth = [ask(port, f"{whole}&first={a}&last={b}&smooth=2000") for a, b in windows(sizes.steps, sizes.zooms)]
        heat = [
            ask(port, f"/api/runs/{run}/heatmap?pixels=400&first={a}&last={b}") for a, b in windows(sizes.steps, 20)
        ]
    what = f"server: {len(DRAWN)} curves of {PIXELS} pixels"
    return [
        judged("server: first answers, files not in memory", spread(cold), max(cold), COLD),
        judged("server: first answers, warm", spread(warm), max(warm), WARM),
        judged(f"{what}, {sizes.zooms} random zooms", spread(zooms), percentile(zooms), ZOOM),
        judged(f"{what}, {sizes.zooms} random zooms, smoothed", spread(smooth), percentile(smooth), ZOOM),
        judged("server: heatmap, random zooms", spread(heat), percentile(heat), ZOOM),
    ]


def percentile(values: Sequence[float]) -> float:
    return float(np.percentile(values, 95))


def judged(what: str, found: Spread, worst: float, wanted: float) -> Found:
    shown = f"{found.show('.0f')} ms, judged {worst:.0f} ms"
    return Found([what, shown, f"at most {wanted:,.0f} ms"], worst <= wanted)


# In the browser


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextlib.contextmanager
def open_browser() -> Iterator[Any]:
    """Chromium without a window, or None."""
    program = find_chromium()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        program = None
    if program is None:
        yield None
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


def open_page(context: Any, address: str) -> tuple[Any, float]:
    """A page, and the milliseconds from its request to the first curve on it."""
    page = context.new_page()
    page.goto(address, wait_until="commit")
    wait_until(page, "bench.paints.length > 0")
    return page, page.evaluate("bench.paints[0] - performance.timeOrigin")


def wait_until(page: Any, expression: str, seconds: float = 60.0) -> None:
    """Asked from outside: the policy of the page forbids what Playwright's own waiting does."""
    until = time.monotonic() + seconds
    while not page.evaluate(f"Boolean(window.bench && {expression})"):
        assert time.monotonic() < until, f"not true within {seconds:g} s: {expression}"
        page.wait_for_timeout(20)


def new_context(browser: Any) -> Any:
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.add_init_script(SPY)
    return context


def measure_browser(browser: Any, folder: RunFolder, sizes: Sizes) -> list[Found]:
    place, cold, warm = f"#/run/{describe(folder.path).id}", list[float](), list[float]()
    for _ in range(sizes.cold):
        drop_from_memory(folder.path)
        with serve(folder.path) as port:
            context = new_context(browser)
            cold.append(open_page(context, f"http://localhost:{port}/{place}")[1])
            for _ in range(3):
                warm.append(open_page(context, f"http://localhost:{port}/{place}")[1])
            context.close()
    with serve(folder.path) as port:
        context = new_context(browser)
        page, _ = open_page(context, f"http://localhost:{port}/{place}")
        page.wait_for_timeout(1000)
        zooms = [zoom(page, number) for number in range(max(5, sizes.zooms // 4))]
        context.close()
    return [
        judged("Chromium: first chart, files not in memory", spread(cold), max(cold), COLD),
        judged("Chromium: first chart, warm", spread(warm), max(warm), WARM),
        judged("Chromium: from the turn of a wheel to curves of the new range", spread(zooms), percentile(zooms), ZOOM),
    ]


def zoom(page: Any, number: int) -> float:
    """Milliseconds from a turn of the wheel over a chart until what was asked for it is painted."""
    chart = page.locator("figure.chart .overlay").first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] * (0.2 + 0.6 * (number % 7) / 7), box["y"] + box["height"] / 2)
    page.evaluate("bench.paints = []; bench.answers = []; bench.begun = performance.timeOrigin + performance.now()")
    page.keyboard.down("Control")
    page.mouse.wheel(0, -400 if number % 8 < 5 else 900)
    page.keyboard.up("Control")
    painted = "bench.answers.length > 0 && bench.paints.some((at) => at > bench.answers[0])"
    wait_until(page, painted)
    page.wait_for_timeout(200)
    return page.evaluate("bench.paints.find((at) => at > bench.answers[0]) - bench.begun")


def measure_pixels(browser: Any, root: Path, readings: int) -> list[Found]:
    """From the training thread's call to the moment at which the page has painted the number."""
    folder = RunFolder(root / "live")
    folder.path.mkdir(parents=True)
    record, handed, steps = RecordWriter(folder.record, from_step=0, say=fail), dict[int, float](), 200
    folder.config.write_text("train:\n  batch_size: 32\n")
    for step in range(steps):
        record.add(step, dict.fromkeys(SIGNALS, 1.0 + step % 7))
    record.flush(wait=True)
    folder.update_status(status="training", step=steps, steps=1000, created=time.time())
    with serve(root) as port:
        context = new_context(browser)
        page, _ = open_page(context, f"http://localhost:{port}/#/run/{describe(folder.path).id}")
        page.wait_for_timeout(1500)
        page.evaluate("bench.least = 0")
        for step in range(steps, steps + readings):
            handed[step] = time.time() * 1000
            record.add(step, dict.fromkeys(SIGNALS, 1.0 + step % 7))
            page.wait_for_timeout(330 + 70 * (step % 5))
            folder.update_status(step=step)
        page.wait_for_timeout(1500)
        deltas, paints = page.evaluate("[bench.deltas, bench.paints]")
        context.close()
    record.close()
    spent = []
    for step, at in handed.items():
        came = min((when for when, cursor in deltas if cursor >= step), default=np.inf)
        spent.append(min((painted for painted in paints if painted >= came), default=np.inf) - at)
    return [judged(f"Chromium: from logged to painted, {readings} readings", spread(spent), percentile(spent), PIXEL)]


def measure_streams(browser: Any, root: Path, sizes: Sizes) -> list[Found]:
    cost = measure_lookers(root, Streams(), serve, sizes.rounds, sizes.seconds)
    return [slowed(f"training with {TABS} streams open, without a browser", cost, SLOWDOWN)]


def measure_front(browser: Any, root: Path, sizes: Sizes) -> list[Found]:
    """The row that counts: tabs as a browser opens them."""
    program = find_chromium()
    if program is None:
        return []
    with open_window(program) as window:
        cost = measure_lookers(root, window, serve, sizes.rounds, sizes.seconds)
    return [slowed(f"training with {TABS} tabs open, one of them in front", cost, SLOWDOWN)]


def measure_visible(browser: Any, root: Path, sizes: Sizes) -> list[Found]:
    if browser is None:
        return []
    cost = measure_lookers(root, Pages(new_context(browser)), serve, sizes.rounds, sizes.seconds)
    return [slowed(f"training with {TABS} pages that are all visible at once", cost, None)]


def slowed(what: str, cost: Cost, wanted: float | None) -> Found:
    took = f"server {cost.server:.0f} ms, lookers {cost.lookers:.0f} ms of a second (empty: {cost.alone:.0f})"
    shown = f"{cost.factor.show('.4f')}, ± {cost.error:.4f}, {cost.rounds} rounds of {cost.steps} steps; {took}"
    good = wanted is None or cost.factor.median <= wanted
    return Found([what, shown, "reported" if wanted is None else f"at most {wanted}"], good)


def measure_runs(browser: Any, root: Path, count: int) -> list[Found]:
    spent = many.measure_list(browser, root, serve, count)
    return [judged(f"Chromium: a list of {count:,} runs", spread(spent), max(spent), MANY)]


def measure_tab(browser: Any, root: Path, count: int) -> list[Found]:
    spent = many.measure_signals(browser, root, serve, count)
    return [judged(f"Chromium: all signals of a run, {count} of them", spread(spent), max(spent), MANY)]


MEASURES: dict[str, Callable[[Any, Path, Sizes], list[Found]]] = {
    "server": lambda browser, root, sizes: measure_server(long_run(root, sizes), sizes),
    "page": lambda browser, root, sizes: measure_browser(browser, long_run(root, sizes), sizes) if browser else [],
    "pixels": lambda browser, root, sizes: measure_pixels(browser, root, sizes.readings) if browser else [],
    "runs": lambda browser, root, sizes: measure_runs(browser, root, sizes.runs) if browser else [],
    "signals": lambda browser, root, sizes: measure_tab(browser, root, sizes.signals) if browser else [],
    "streams": measure_streams,
    "front": measure_front,
    "visible": measure_visible,
}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a little of everything, to see whether it works")
    parser.add_argument("--rounds", type=int, help="of training with and without tabs")
    parser.add_argument("--only", choices=MEASURES, nargs="+", help="these parts; rows of others stay as they are")
    given = parser.parse_args(words)
    sizes = QUICK if given.quick else Sizes()
    sizes = sizes if given.rounds is None else replace(sizes, rounds=given.rounds)
    found: list[Found] = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in given.only or MEASURES:
            with open_browser() as browser:
                found += MEASURES[name](browser, Path(temporary) / name, sizes)
    rows = merged([each.row for each in found], kept_rows() if given.only else [])
    write_table("dashboard", "How fast the dashboard is, and what it costs", ["what", "found", "wanted"],
                rows, notes_on(sizes))  # fmt: skip
    return 0 if all(each.good for each in found) else 1


def long_run(root: Path, sizes: Sizes) -> RunFolder:
    folder = RunFolder(root / "run")
    fill(folder, sizes.steps)
    return folder


def kept_rows() -> list[Row]:
    """What the table says now: parts are measured one at a time where a machine is shared."""
    path = RESULTS / "dashboard.md"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [list[object](line.strip("| ").split(" | ")) for line in lines if line.startswith("| ")][2:]


def merged(found: Sequence[Row], kept: Sequence[Row]) -> list[Row]:
    """New rows in the place of old ones of the same name, others behind them."""
    new = {row[0]: row for row in found}
    return [new.pop(row[0], row) for row in kept] + list(new.values())


def notes_on(sizes: Sizes) -> list[str]:
    return [
        f"A record of {sizes.steps:,} steps x {len(SIGNALS)} signals. Medians, with the quartiles in brackets. Judged: "
        "the slowest of first charts, the 95th percentile of the others.",
        "The server runs at low priority (nice 10), as it does beside a training. Not in memory: a new process, and "
        "the files were dropped from the page cache.",
        "Zooms: ranges of a hundred steps to half of the run, log-uniform, anywhere. None is asked for twice.",
        "Painted: a curve of more than 20 points was stroked on a canvas; for a zoom, after its numbers came. The "
        "first chart counts from the start of the navigation, in headless Chromium on the same machine.",
        "From logged to painted: one reading about every half second; the record stores it at once, or 0.4 s after the "
        "last. Painted is the first stroke on the first chart after the reading came to the page.",
        "Training: the demo's step with all monitors and the record, on all threads, in blocks, in turns with lookers "
        "and without. Factors are taken within each round; medians of the processor time of others beside them.",
        f"Streams: {TABS} connections that listen and draw nothing: what the server costs. One in front: one window of "
        "Chromium with ten tabs at the run, against the same window with ten empty ones; nobody drives it, so the "
        "tabs behind are hidden, as they are for a person. All visible: ten pages that are told that they are in "
        "front, which no single screen shows; they share the two cores with the training.",
        "Parts were measured one after the other (--only).",
    ]


if __name__ == "__main__":
    sys.exit(main())
