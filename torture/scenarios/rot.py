"""Bit rot: whatever is changed in the newest checkpoint is found out, and the one before it is loaded."""

from __future__ import annotations

import random
from pathlib import Path

from safelight.checkpoints import manifest
from safelight.checkpoints.folder import steps
from safelight.checkpoints.reader import load, load_newest
from torture.moments import QUICK, difference
from torture.scenario import Outcome, Scenario, Trial
from torture.tiny_run import configure, make_images, train_alone

SILENT = "silently corrupt"


def flip(content: bytearray, draw: random.Random) -> str:
    place = draw.randrange(len(content))
    content[place] ^= 1 << draw.randrange(8)
    return f"a bit of byte {place} flipped"


def flip_many(content: bytearray, draw: random.Random) -> str:
    for _ in range(draw.randint(2, 64)):
        flip(content, draw)
    return "many bits flipped"


def cut(content: bytearray, draw: random.Random) -> str:
    del content[draw.randrange(len(content)) :]
    return f"cut to {len(content)} bytes"


def lengthen(content: bytearray, draw: random.Random) -> str:
    content += draw.randbytes(draw.randint(1, 64))
    return "bytes added at its end"


def blank(content: bytearray, draw: random.Random) -> str:
    start = draw.randrange(len(content))
    stop = start + draw.choice([1, 16, 512, 4096])
    content[start:stop] = bytes(len(content[start:stop]))
    return f"zeros from byte {start}"


def swap(content: bytearray, draw: random.Random) -> str:
    size = max(1, len(content) // 8)
    one, other = draw.randrange(len(content) - size), draw.randrange(len(content) - size)
    kept = bytes(content[one : one + size])
    content[one : one + size] = content[other : other + size]
    content[other : other + size] = kept
    return "two blocks swapped"


KINDS = (flip, flip, flip, flip_many, cut, cut, lengthen, blank, swap)


def rot(trial: Trial, *, broken: bool = False) -> Outcome:
    """A case is one change to one file of the newest of two real checkpoints."""
    make_images(trial.folder / "images")
    config = configure(trial.folder / "images", train__steps=8, checkpoint__every=4)
    train_alone(trial.folder / "run", config)
    if broken:
        manifest._check_digest = lambda folder, entry, digest: None
    folder, outcome = trial.folder / "run" / "checkpoints", Outcome()
    before, newest = (load(folder / f"step_{step:08d}") for step in steps(folder))
    originals = {path: path.read_bytes() for path in sorted(newest.path.iterdir())}
    for case in trial.cases:
        draw = trial.draw(case)
        path = draw.choice([*originals])
        content = bytearray(originals[path])
        deed = draw.choice(KINDS)(content, draw)
        if bytes(content) == originals[path]:
            continue  # zeros over zeros: nothing has changed
        outcome.count += 1
        outcome.tally[f"in {path.name}"] += 1
        said: list[str] = []
        path.write_bytes(content)
        try:
            loaded = load_newest(folder, said.append, disk=QUICK)
        except Exception as error:
            outcome.lost.append((case, f"{path.name}, {deed}: {type(error).__name__}: {error}"))
        else:
            if loaded is None or loaded.step != before.step or not said:
                outcome.lost.append(
                    (case, f"{SILENT}: {path.name}, {deed}, and step {loaded and loaded.step} was loaded")
                )
            elif other := difference(loaded, before):  # type: ignore[arg-type]
                outcome.lost.append((case, f"{path.name}, {deed}: the checkpoint before has {other}"))
        _put_back(folder, newest.path, path, originals[path])
    return outcome


def _put_back(folder: Path, newest: Path, path: Path, content: bytes) -> None:
    for aside in folder.glob(".corrupt-*"):
        aside.rename(newest)
    path.write_bytes(content)


ROT = Scenario(
    "bit rot",
    "Bits flipped, files cut, lengthened, blanked and mixed up, in every file of the newest checkpoint of a real run, "
    "the manifest too: all of it is found out, told, and the checkpoint before is loaded with every tensor as it was.",
    "changes", 10_000, 10_600, 200, 1325, rot,
)  # fmt: skip
NO_CHECKSUM = Scenario(
    "checksum off",
    "The sha256 of files is not looked at.",
    "changes", 100, 300, 100, 300, lambda trial: rot(trial, broken=True), symptom=SILENT,
)  # fmt: skip
