"""One picture in ten is broken, and the processes that decode them are killed: the same list and the same weights."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import signal
import struct
import time
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from safelight.config import Config
from safelight.data import scan
from torture.child_run import ended, finish, start
from torture.marks import Marks
from torture.scenario import Outcome, Scenario, Trial
from torture.tiny_run import check_end, configure, differing, digest, finals, log_of, train_alone

GOOD, BAD, SIDE, STEPS = 270, 30, 320, 8
MOST_KILLS = 4  # of one scan
OTHER = "another list of what was left out"


def make_pile(folder: Path) -> None:
    """Noise decodes slowly enough to be killed in; every eleventh file or so cannot be read."""
    draw = np.random.default_rng(0)
    whole: list[bytes] = []
    for number in range(6):
        buffer = io.BytesIO()
        kind = ("PNG", "JPEG", "TIFF")[number % 3]
        Image.fromarray(draw.integers(0, 256, (SIDE, SIDE, 3), np.uint8)).save(buffer, kind)
        whole.append(buffer.getvalue())
    for number in range(GOOD):
        place = folder / f"class_{number % 2}" / f"{number:03d}{('.png', '.jpg', '.tif')[number % 3]}"
        place.parent.mkdir(parents=True, exist_ok=True)
        content = whole[number % 6]
        if number % 3 == 0:  # so that no two are the same: a chunk that nobody reads
            body = f"Comment\0{number}".encode()
            extra = struct.pack(">I", len(body)) + b"tEXt" + body + struct.pack(">I", zlib.crc32(b"tEXt" + body))
            content = content[:33] + extra + content[33:]
        place.write_bytes(content)
    broken = [
        b"",
        b"<html>404</html>",
        whole[0][:2000],
        whole[1][:50],
        whole[2][:90],
        noisy_fax(),
        b"\x89PNG\r\n\x1a\n" * 9,
    ]
    for number in range(BAD):
        (folder / f"class_{number % 2}" / f"bad_{number:02d}.png").write_bytes(broken[number % len(broken)])
    (folder / "class_0" / "fax.tif").write_bytes(noisy_fax())


def noisy_fax(rows: int = 6000) -> bytes:
    """A damaged fax: libtiff has a line of complaint for every row, which together are more than a pipe holds."""
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).random((rows, 64)) > 0.5).save(buffer, "TIFF", compression="group3")
    content = bytearray(buffer.getvalue())
    content[300:-500] = bytes(len(content) - 800)
    return bytes(content)


def count_results(marks: Marks) -> None:
    """Patches a child: its parent sees how far the scan is."""
    take = scan._Pool._take

    def counted(self: scan._Pool, worker: scan._Worker, kind: bytes, body: bytes) -> None:
        marks.step += 1
        take(self, worker, kind, body)

    scan._Pool._take = counted


def decoders(parent: int) -> list[int]:
    """The processes that decode for it."""
    found: list[int] = []
    for task in Path(f"/proc/{parent}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text().split())
    return found


def scan_and_train(trial: Trial, *, broken: bool = False) -> Outcome:
    """A case is a scan whose processes are killed, and a short training on what it kept."""
    pile, outcome = trial.folder / "pile", Outcome()
    make_pile(pile)
    config = configure(pile, train__steps=STEPS, data__max_bad=0.2, sample__every=STEPS, data__scan_workers=1)
    train_alone(trial.folder / "reference", config)
    listed, reference = left_out(trial.folder / "reference"), finals(trial.folder / "reference", STEPS)
    outcome.finals = digest(reference)
    outcome.tally["files left out of each scan"] = len(listed)
    for case in trial.cases:
        run, draw = trial.folder / f"run-{case}", trial.draw(case)
        os.environ["SAFELIGHT_CACHE"] = str(trial.folder / f"cache-{case}")
        changed = configure(
            pile, train__steps=STEPS, data__max_bad=0.2, sample__every=STEPS, data__scan_workers=draw.choice([1, 2, 3])
        )
        try:
            outcome.count += _kill_decoders(run, changed, draw, broken)
            assert left_out(run) == listed, OTHER
            other = differing(reference, finals(run, STEPS))
            assert not other, f"other bytes in {other}"
        except AssertionError as error:
            outcome.lost.append((case, str(error)))
        outcome.tally["scans"] += 1
        shutil.rmtree(trial.folder / f"cache-{case}", ignore_errors=True)
    return outcome


def _kill_decoders(run: Path, config: Config, draw: random.Random, broken: bool) -> int:
    marks, killed, seen = Marks(), 0, -1

    def change() -> None:
        count_results(marks)
        if broken:
            scan.KILLS = 1

    child = start(run, config, marks=marks, log=log_of(run), change=change)
    status, pause = None, draw.uniform(0.0, 0.5)
    while status is None and killed < MOST_KILLS and marks.phase == 0:
        began = time.perf_counter()
        while status is None and time.perf_counter() - began < pause and marks.phase == 0:
            status = ended(child, 0.002)
        # One that is killed before its first answer is no fault of a file, but three in a row end the scan in words.
        if status is None and marks.phase == 0 and marks.step > seen and (pids := decoders(child)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(draw.choice(pids), signal.SIGKILL)
                killed, seen = killed + 1, marks.step
        pause = draw.uniform(0.0, 0.3)
    check_end(run, finish(child) if status is None else os.waitstatus_to_exitcode(status))
    return killed


def left_out(run: Path) -> list[list[str]]:
    return json.loads((run / "data.json").read_text())["rejected"]


DIRT = Scenario(
    "dirty data",
    "300 files of which 30 cannot be read, scanned by 1 to 3 processes that are killed at random; at one file libtiff "
    "complains 6,000 times. The list of what was left out, with its reasons, and the weights trained on the rest are "
    "those of an undisturbed scan.",
    "kills", 30, 12, 1, 6, scan_and_train,
)  # fmt: skip
BLAMED = Scenario(
    "one kill blames a file",
    "A file is left out when the process that decodes it is killed once.",
    "kills", 1, 4, 2, 4, lambda trial: scan_and_train(trial, broken=True), symptom=OTHER,
)  # fmt: skip
