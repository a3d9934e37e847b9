"""What open pages of the dashboard cost a training on the same machine: blocks of steps with them and without."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Protocol
from urllib.parse import quote

import numpy as np
import psutil

from bench.measure import Spread, ratios, timed
from bench.watch import Contender, trainer
from safelight.config.resolve import resolve
from safelight.data.prepare import open_images
from safelight.pages.data.runs import describe
from safelight.run import RunFolder
from safelight.training.build import build, infer_data_settings

TABS = 10
LONGEST = 480.0  # seconds after which no round is begun
SETTLE = 4.0  # seconds after pages were opened or closed
SIGNALS = ("loss/mean", "loss/whitened", "optimizer/lr", "gradient/norm", "gradient/limit", "speed/images")
# Ten that listen as pages do, and do nothing with what they hear.
CLIENTS = """
import selectors, socket, sys
port, target, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
chosen = selectors.DefaultSelector()
for _ in range(count):
    each = socket.create_connection(("127.0.0.1", port))
    each.sendall(f"GET {target} HTTP/1.1\\r\\nHost: localhost:{port}\\r\\n\\r\\n".encode())
    chosen.register(each, selectors.EVENT_READ)
while True:
    for key, _ in chosen.select():
        if not key.fileobj.recv(65536):
            sys.exit("a stream ended")
"""


class Lookers(Protocol):
    """Who looks at a run, and can leave again."""

    def look(self, port: int, run: str) -> None: ...

    def leave(self) -> None: ...

    def processes(self) -> list[psutil.Process]: ...


@dataclass(frozen=True, slots=True)
class Cost:
    """The training's time with lookers against without, and processor time in ms of each second that others took."""

    factor: Spread
    error: float
    """Standard error of the median factor, by drawing the rounds again."""
    rounds: int
    steps: int
    server: float
    lookers: float
    alone: float
    """The same processes while nobody looks: an empty browser is busy too."""


def measure_lookers(root: Path, lookers: Lookers, serve: Callable[[Path], Any], rounds: int, seconds: float) -> Cost:
    """The demo's training step with all monitors and the record; the order turns from round to round."""
    config = resolve(preset="digits")
    images = open_images(config.data)
    config = infer_data_settings(config, images)
    times: dict[bool, list[float]] = {True: [], False: []}
    spent: dict[bool, list[Sequence[float]]] = {True: [], False: []}  # by the server, by the lookers
    with contextlib.ExitStack() as stack:
        path = root / "training"
        *_, seen = trainer(stack, path, *(build(config, images, lambda _: None) for _ in range(2)))
        folder = RunFolder(path)
        folder.update_status(status="training", step=0, steps=100_000, created=time.time())
        counter = iter(range(10**9))
        block = max(2, round(seconds / (timed(lambda: take(seen, folder, counter, 20)) / 20)))
        port = stack.enter_context(serve(root))
        server = next(each for each in psutil.Process().children() if "dashboard" in each.cmdline())
        looked, until = False, time.monotonic() + LONGEST
        for number in range(rounds):
            if time.monotonic() > until:
                break
            for looking in (number % 2 == 0, number % 2 == 1):
                if looking != looked:
                    lookers.look(port, describe(path).id) if looking else lookers.leave()
                    looked = looking
                    time.sleep(SETTLE)
                    take(seen, folder, counter, 2)
                before, begun = (processor_time([server]), processor_time(lookers.processes())), time.perf_counter()
                times[looking].append(timed(lambda: take(seen, folder, counter, block)))
                length = time.perf_counter() - begun
                after = processor_time([server]), processor_time(lookers.processes())
                spent[looking].append([1000 * (b - a) / length for a, b in zip(before, after, strict=True)])
                print(f"{'with' if looking else 'without'}: {times[looking][-1]:.3f} s", file=sys.stderr, flush=True)
        lookers.leave()
    (server_time, lookers_time), (_, alone) = (
        [median(part) for part in zip(*spent[way], strict=True)] for way in spent
    )
    each = np.array(times[True]) / np.array(times[False])
    drawn = np.median(np.random.default_rng(0).choice(each, (1000, len(each))), axis=1)
    factor = ratios(times[False], times[True])
    return Cost(factor, float(drawn.std()), len(each), block, server_time, lookers_time, alone)


def take(seen: Contender, folder: RunFolder, counter: Iterator[int], steps: int) -> None:
    beat = time.monotonic()
    for _ in range(steps):
        step = next(counter)
        seen.step(step)
        if time.monotonic() - beat > 2:
            beat = time.monotonic()
            folder.update_status(step=step)


def processor_time(processes: Sequence[psutil.Process]) -> float:
    """Seconds, of all of them and their children that still live."""
    found = {each.pid: each for parent in processes for each in (parent, *parent.children(recursive=True))}
    total = 0.0
    for each in found.values():
        with contextlib.suppress(psutil.Error):
            spent = each.cpu_times()
            total += spent.user + spent.system
    return total


@dataclass
class Streams:
    """Ten connections that only listen: what the server costs, without any browser."""

    _process: subprocess.Popen[bytes] | None = None

    def look(self, port: int, run: str) -> None:
        target = f"/api/live?run={run}&after=0&signals={','.join(SIGNALS)}"
        self._process = subprocess.Popen([sys.executable, "-c", CLIENTS, str(port), target, str(TABS)])

    def leave(self) -> None:
        if self._process is not None:
            assert self._process.poll() is None, "the streams ended by themselves"
            self._process.kill()
            self._process.wait()
            self._process = None

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process(self._process.pid)] if self._process is not None else []


@dataclass
class Window:
    """A browser as a person has it: one window, many tabs, one of them in front. Driven from outside without attaching
    to a page: to a page that is driven, Chromium says that it is visible."""

    port: int
    process: subprocess.Popen[bytes]
    _tabs: list[str] = field(default_factory=list)

    def look(self, port: int, run: str) -> None:
        self._fill(f"http://localhost:{port}/#/run/{run}")

    def leave(self) -> None:
        self._fill("about:blank")

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process(self.process.pid)]

    def titles(self) -> list[str]:
        return [each["title"] for each in json.loads(self._ask("/json/list")) if each["id"] in self._tabs]

    def _fill(self, address: str) -> None:
        """All tabs anew; the last one is in front."""
        old, self._tabs = self._tabs, []
        for _ in range(TABS):
            self._tabs.append(json.loads(self._ask(f"/json/new?{quote(address, safe=':/')}", "PUT"))["id"])
            time.sleep(0.3)  # one after the other: each is in front for a moment, and so it is loaded
        for tab in old:
            self._ask(f"/json/close/{tab}")

    def _ask(self, address: str, method: str = "GET") -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request(method, address)
        answer = connection.getresponse().read()
        connection.close()
        return answer


@contextlib.contextmanager
def open_window(program: str) -> Iterator[Window]:
    folder = tempfile.mkdtemp()
    command = [program, "--headless=new", "--no-sandbox", "--no-first-run", "--remote-debugging-port=0",
               f"--user-data-dir={folder}", "--window-size=1400,1000", "about:blank"]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        note, until = Path(folder) / "DevToolsActivePort", time.monotonic() + 20
        while not (note.exists() and note.read_text().strip()):
            assert time.monotonic() < until, f"{program} did not start"
            time.sleep(0.1)
        window = Window(int(note.read_text().split()[0]), process)
        window.leave()
        yield window
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Pages:
    """Ten pages that are all visible at once, as no person has them: each in a window of its own on a large screen."""

    context: Any
    _pages: list[Any] = field(default_factory=list)

    def look(self, port: int, run: str) -> None:
        self._go(f"http://localhost:{port}/#/run/{run}")
        assert not any(page.evaluate("document.hidden") for page in self._pages)

    def leave(self) -> None:
        self._go("about:blank")

    def processes(self) -> list[psutil.Process]:
        return [each for each in psutil.Process().children(recursive=True) if "chrom" in each.name()]

    def _go(self, address: str) -> None:
        while len(self._pages) < TABS:
            self._pages.append(self.context.new_page())
        for page in self._pages:
            page.goto(address)
