"""A link, a second name, a pipe or a folder in the place of every file and folder that a command opens below a run or
cache folder: no file outside changes, and nothing waits for ever. `python -m torture.sweep` tries all of them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import stat
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

LONGEST = 600.0  # seconds of a case, on a machine that has much else to do
SETTINGS = {"model.widths": "16", "model.norm_groups": 8, "model.attention": "", "model.layers": 1, "train.steps": 4,
            "train.batch_size": 8, "train.threads": 1, "train.preflight": "off", "checkpoint.every": 2,
            "sample.every": 2, "sample.count": 4, "sample.steps": 2, "evaluate.every": 0, "ema.snapshots": 2,
            "log.to": "jsonl"}  # fmt: skip
SET = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
COMMANDS: dict[str, list[str]] = {
    "resume": ["resume", "run"],
    "train": ["train", "digits", "--preset", "digits", *SET, "--run", "new"],
    "sample": ["sample", "run", "-n", "4", "--sample-steps", "2", "-o", "out.png"],
    "evaluate": ["evaluate", "run", "-n", "200", "--sample-steps", "1"],
    "report": ["report", "run"],
    "export": ["export", "run", "-o", "pipeline"],
    "metrics": ["metrics", "run", "--csv", "out.csv"],
    "doctor": ["doctor", "run"],
    "compare": ["compare", "run", "run"],
    "data": ["data", "digits", "--preset", "digits", "-o", "sheet.png"],
    "estimate": ["estimate", "digits", "--preset", "digits", *SET],
}
KINDS = ("symbolic link", "hard link", "pipe", "folder")
RANDOM = re.compile(r"(^|/)\.tmp-|[0-9a-f]{16}\.|events\.out")  # names that nobody can know before


@dataclass(frozen=True, slots=True)
class Case:
    """One command with something in the place of a file or folder, named from the folder that holds run and cache."""

    command: str
    place: str
    kind: str


def prepare(home: Path) -> Path:
    """A trained run with its cache, which still has two steps to train."""
    base = home / "base"
    base.mkdir(parents=True)
    code = run_command(base, [*COMMANDS["train"][:-1], "run"])
    assert code == 0, f"the run was not trained: {code}"
    shutil.rmtree(base / "run" / "checkpoints" / "step_00000004")
    return base


def run_command(home: Path, words: list[str], before: Callable[[], object] = lambda: None) -> int | str:
    """The exit code of a command in a child of its own; in words, how it hung or crashed."""
    child = os.fork()
    if child == 0:
        code = 99
        with contextlib.suppress(BaseException):
            code = _act(home, words, before)
        os._exit(code)
    until = time.monotonic() + LONGEST
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return "a traceback" if code == 99 else f"killed by signal {-code}" if code < 0 else code
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "it hung"


def _act(home: Path, words: list[str], before: Callable[[], object]) -> int:
    os.chdir(home)
    os.environ |= {"SAFELIGHT_CACHE": str(home / "cache"), "OMP_NUM_THREADS": "1", "SAFELIGHT_NO_DASHBOARD": "1"}
    log = os.open(home / "said.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    before()
    from safelight.cli import main

    try:
        return main(words)
    except SystemExit as ending:
        return int(ending.code or 0)
    except BaseException:
        traceback.print_exc()
        return 99


def trace(home: Path, base: Path, command: str) -> list[str]:
    """The files below the run and the cache that a command opens, creates, replaces or removes, and their folders."""
    place = _copy(base, home / f"trace-{command}")
    before = _states(place)
    code = run_command(place, COMMANDS[command], lambda: _listen(place))
    assert code == 0, f"{command} ended with {code}: {(place / 'said.log').read_text()[-500:]}"
    seen = set((place / "opened.log").read_text().splitlines())
    after = _states(place)
    seen |= {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    files = {name for name in seen if name.startswith(("run/", "cache/", "new/")) and not RANDOM.search(name)}
    folders = {str(parent) for name in files for parent in Path(name).parents if len(parent.parts) > 1}
    shutil.rmtree(place)
    return sorted(files | folders)


def _listen(home: Path) -> None:
    """Writes down what is opened: by Python and SQLite under a path, by `Disk` relative to a handle."""
    from safelight.files.disk import Disk

    log = os.open(home / "opened.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    root, true = str(home), Disk._at

    def note(path: object) -> None:
        with contextlib.suppress(Exception):
            full = os.path.abspath(os.fsdecode(str(path).removeprefix("file:").partition("?")[0]))
            if full.startswith(root + os.sep):
                os.write(log, (full[len(root) + 1 :] + "\n").encode())

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event in ("open", "sqlite3.connect", "os.rename", "os.remove", "os.mkdir", "os.truncate", "os.utime"):
            note(arguments[0])

    def at(self: Disk, path: Path) -> object:
        note(path)
        return true(self, path)

    Disk._at = at  # type: ignore[method-assign, assignment]
    sys.addaudithook(hook)


def plant(home: Path, case: Case) -> Callable[[], str | None]:
    """Puts it there; what is called afterwards says what changed outside."""
    place, victims = home / case.place, home.parent / f"{home.name}-victims"
    victims.mkdir()
    victim = victims / "victim"
    place.parent.mkdir(parents=True, exist_ok=True)
    is_folder = place.is_dir()
    if os.path.lexists(place):
        place.rename(victim)
    elif case.kind != "folder" and "." not in place.name and case.kind == "symbolic link":
        victim.mkdir()
    else:
        victim.write_bytes(b"precious")
    if case.kind == "symbolic link":
        place.symlink_to(victim)
    elif case.kind == "hard link" and not is_folder and victim.is_file():
        place.hardlink_to(victim)
    elif case.kind == "pipe":
        os.mkfifo(place)
    else:
        place.mkdir()
        (place / "inside").write_bytes(b"x")
    before = _content(victims)
    return lambda: None if (after := _content(victims)) == before else _differing(before, after)


def try_case(home: Path, base: Path, case: Case, before: Callable[[], object] = lambda: None) -> str | None:
    """What went wrong, in words."""
    place = _copy(base, home / "case")
    changed = plant(place, case)
    code = run_command(place, COMMANDS[case.command], before)
    words = changed()
    said = (place / "said.log").read_text(errors="replace")
    for folder in (place, home / "case-victims"):
        shutil.rmtree(folder)
    if isinstance(code, str):
        return f"{code}: {said[-400:]}"
    return None if words is None else f"a victim was changed: {words}"


def cases(places: dict[str, list[str]], kinds: Iterable[str] = KINDS) -> list[Case]:
    return [Case(command, place, kind) for command in places for place in places[command] for kind in kinds]


def unprotected() -> None:
    """The control: one file is written as it was before."""
    import safelight.run

    def write(path: Path, content: bytes, *_: object, **__: object) -> None:
        path.write_bytes(content)

    safelight.run.write_atomically = write  # type: ignore[assignment]


def warm_up() -> None:
    """Imports once what every child needs. Nothing is computed: a process that has must not fork."""
    import accelerate  # noqa: F401
    import diffusers.models.unets.unet_2d
    import diffusers.schedulers.scheduling_ddim
    import diffusers.schedulers.scheduling_ddpm  # noqa: F401
    import sklearn.cluster
    import sklearn.datasets  # noqa: F401
    import torch
    import torch.profiler
    import tyro  # noqa: F401
    from PIL import Image

    import safelight.assessment
    import safelight.pages.report.html
    import safelight.start  # noqa: F401

    Image.init()

    torch.set_num_threads(1)


def _copy(base: Path, place: Path) -> Path:
    return shutil.copytree(base, place, symlinks=True)


def _states(home: Path) -> dict[str, tuple[int, int, int]]:
    found = {str(path.relative_to(home)): os.lstat(path) for path in home.rglob("*")}
    return {name: (each.st_ino, each.st_size, each.st_mtime_ns) for name, each in found.items()}


def _content(folder: Path) -> dict[str, str]:
    """Names, kinds, inodes and bytes: to be replaced by the same bytes is a change too."""
    found = dict[str, str]()
    for path in sorted(folder.rglob("*")):
        mode = os.lstat(path).st_mode
        plain = stat.S_ISREG(mode)
        found[str(path.relative_to(folder))] = (
            f"{os.lstat(path).st_ino} {hashlib.sha256(path.read_bytes()).hexdigest()}"
            if plain
            else stat.filemode(mode)[0]
        )
    return found


def _differing(before: dict[str, str], after: dict[str, str]) -> str:
    names = [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]
    return ", ".join(names[:5])


def main() -> int:
    """All cases of the commands that are named, or of all commands; with `--one-in N`, every Nth of them."""
    words = sys.argv[1:]
    nth = int(words.pop(words.index("--one-in") + 1)) if "--one-in" in words else 1
    named = [word for word in words if word != "--one-in"]
    warm_up()
    lost, tried = list[tuple[Case, str]](), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        base = prepare(home)
        places = {command: trace(home, base, command) for command in named or COMMANDS}
        print(json.dumps({command: len(found) for command, found in places.items()}), flush=True)
        for case in cases(places)[nth // 2 :: nth]:
            tried[case.command] += 1
            print(sum(tried.values()), end="\r", flush=True)
            if (words := try_case(home, base, case)) is not None:
                lost.append((case, words))
                print(case, words, flush=True)
        control = Case("resume", "run/run.json", "symbolic link")
        found = try_case(home, base, control, unprotected)
    print(f"{sum(tried.values())} cases, {len(lost)} lost; the control was {'found' if found else 'NOT FOUND'}")
    print("\n".join(f"| {command} | {count} |" for command, count in tried.items()))
    return int(bool(lost) or not found)


if __name__ == "__main__":
    raise SystemExit(main())
