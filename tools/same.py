"""Shows that a change of the code changed no byte of a run: trains a matrix of runs with two trees and compares them.

    make same BASE=main                     # the working tree against a revision
    python -m tools.same main --only plain two-exact
    python -m tools.same HEAD --controls    # one line is broken on purpose, three times: each must be seen

Compared are weights, averages, moments, counters, the journal of healing, pictures, every reading but those of time and
memory, events, and what the doctor finds. Words may change: reasons and summaries are left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safelight.record.history import History, open_history
from tools.same_cases import CASES, LOOPS

ROOT = Path(__file__).parents[1]
OF_TIME = ("speed/", "system/memory", "distributed/slowest", "distributed/waiting", "distributed/seconds")
SECONDS = {"seconds", "evaluation_seconds"}  # in state.json
WORDS = {
    "reason", "summary", "text", "fix", "ruled_out", "seconds", "share_of_time", "spent", "path", "extractor", "time",
    "title",
}  # fmt: skip
NAMES = (*CASES, *LOOPS)


@dataclass(frozen=True, slots=True)
class Control:
    """One line of the package, broken: the comparison has to see it."""

    name: str
    file: str
    line: str
    broken: str
    case: str


CONTROLS = (
    Control("update", "safelight/training/optimizer.py", "return low + ", "return 1e-9 + low + ", "plain"),
    Control(
        "data order",
        "safelight/data/batches.py",
        'derive_seed(self._seed, "order"',
        'derive_seed(1 + self._seed, "order"',
        "plain",
    ),
    Control("monitor", "safelight/monitors/loss.py", "SMOOTHING_DECAY = 0.98", "SMOOTHING_DECAY = 0.97", "plain"),
)


def train_all(tree: Path, out: Path, names: Sequence[str]) -> subprocess.Popen[bytes]:
    """Starts the runs of one tree; the cases are those of the working tree, the package is that of `tree`."""
    environment = os.environ | {
        "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "SAFELIGHT_CACHE": str(out / "cache"), "NO_COLOR": "1",
        "COLUMNS": "200", "PYTHONHASHSEED": "0",
    }  # fmt: skip
    script = ROOT / "tools" / "same_cases.py"
    return subprocess.Popen([sys.executable, str(script), str(out), *names], cwd=out, env=environment)


def contents(folder: Path) -> dict[str, Any]:
    """All of a case that has to be the same, by name."""
    found: dict[str, Any] = {"exit codes": json.loads((folder / "ends.json").read_text())}
    run = folder / "run"
    for path in sorted([*folder.glob("*.safetensors"), *run.rglob("*.safetensors"), *run.rglob("*.png")]):
        found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    for path in sorted(run.rglob("state.json")):
        state = json.loads(path.read_text())
        found[str(path.relative_to(folder))] = {k: plain(v) for k, v in state.items() if k not in SECONDS}
    if (run / "record.sqlite").exists():
        with open_history(run / "record.sqlite") as history:
            found.update(recorded(history))
    if (folder / "findings.json").exists():
        found["findings"] = plain(json.loads((folder / "findings.json").read_text()))
    return found


def recorded(history: History) -> Iterator[tuple[str, Any]]:
    for name in history.signals():
        if not name.startswith(OF_TIME):
            steps, numbers = history.raw(name)
            yield f"reading {name}", (steps.tolist(), [plain(float(number)) for number in numbers])
    for name in sorted({note.name for note in history.events()}):
        yield f"events {name}", [(note.step, plain(note.facts)) for note in history.events(name)]


def plain(value: Any) -> Any:
    """Without words and times, and with NaN equal to itself."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items() if name not in WORDS}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    found = [f"{name} is only in the base" for name in theirs.keys() - ours.keys()]
    found += [f"{name} is new" for name in ours.keys() - theirs.keys()]
    found += [name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]]
    return sorted(found)


def compare(ours: Path, theirs: Path, name: str) -> tuple[int, list[str]]:
    """(what was compared, what differs)."""
    mine, base = contents(ours / name), contents(theirs / name)
    return len(mine), differences(mine, base)


def train_both(ours: Path, theirs: Path, out: Path, names: Sequence[str]) -> None:
    folders = [(ours, out / "ours"), (theirs, out / "base")]
    for _, folder in folders:
        folder.mkdir()
    ends = [process.wait() for process in [train_all(tree, folder, names) for tree, folder in folders]]
    if any(ends):
        sys.exit(f"A tree could not train its runs (exit codes {ends}); see {out}.")


def report(out: Path, names: Sequence[str]) -> int:
    """The number of cases that differ."""
    wrong = 0
    for name in names:
        count, found = compare(out / "ours", out / "base", name)
        wrong += bool(found)
        print(
            f"{'DIFFERS' if found else 'same':8} {name:24} {count} compared" + "".join(f"\n    {x}" for x in found[:8])
        )
    return wrong


def check_out(revision: str, folder: Path) -> None:
    archive = subprocess.run(["git", "archive", revision, "safelight"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)


def broken_copy(control: Control, folder: Path) -> Path:
    """The package of the working tree with one line broken."""
    shutil.copytree(ROOT / "safelight", folder / "safelight", ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / control.file
    text = path.read_text()
    assert text.count(control.line) >= 1, f"{control.file} no longer has {control.line!r}: choose another line"
    path.write_text(text.replace(control.line, control.broken, 1))
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", help="the revision that the working tree is compared with")
    parser.add_argument("--only", nargs="+", choices=NAMES, metavar="CASE", help=f"some of: {', '.join(NAMES)}")
    parser.add_argument("--controls", action="store_true", help="break one line, three times, and see each noticed")
    given = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="safelight-same-") as temporary:
        top = Path(temporary)
        check_out(given.base, top / "tree")
        if given.controls:
            unseen = [c.name for c in CONTROLS if not is_seen(c, top)]
            sys.exit(f"Not seen: {', '.join(unseen)}" if unseen else 0)
        names = given.only or NAMES
        train_both(ROOT, top / "tree", top, names)
        wrong = report(top, names)
    print(
        f"{len(names) - wrong} of {len(names)} runs are the same as at {given.base} ({time.monotonic() - begun:.0f} s)."
    )
    sys.exit(1 if wrong else 0)


def is_seen(control: Control, top: Path) -> bool:
    out = top / control.name.replace(" ", "-")
    out.mkdir()
    train_both(broken_copy(control, out / "broken"), top / "tree", out, [control.case])
    count, found = compare(out / "ours", out / "base", control.case)
    print(f"{'seen' if found else 'NOT SEEN':9} {control.name}: {len(found)} of {count} differ, {', '.join(found[:3])}")
    return bool(found)


if __name__ == "__main__":
    main()
