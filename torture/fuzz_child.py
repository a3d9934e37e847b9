"""Malformed inputs in a child that is watched: no crash, no hang, no code run, every refusal in words."""

from __future__ import annotations

import json
import mmap
import os
import random
import resource
import signal
import sys
import sysconfig
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safelight.errors import SafelightError
from torture.child_lifetime import die_with
from torture.scenario import SLOWEST, Outcome, Trial

LONGEST = 30.0  # seconds of the wall clock for one input; the machine may be busy, and none needs one of its own
MEMORY = 2 << 30  # bytes that an input may take on top of what the child has
CANARY = "canary"  # the file that hostile inputs try to make
NOT_READY, UNOPENED = 3, "the reader could not be opened"
CRASH, HANG, CODE, FOREIGN, WORDLESS = "crash", "hang", "code was run", "not in our words", "without words"

FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen", "pty.spawn",
             "socket.connect", "socket.bind", "socket.getaddrinfo", "pickle.find_class", "ctypes.dlopen",
             "webbrowser.open", "sqlite3.enable_load_extension", "sqlite3.load_extension", "os.kill", "os.putenv",
             "os.chmod", "os.chown", "os.link", "os.symlink")  # fmt: skip
CHANGING = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate")


@dataclass(frozen=True, slots=True)
class Reader:
    """How inputs of one kind are made, and who reads them; `refusals` are errors whose words a person is shown."""

    make: Callable[[random.Random], Any]
    read: Callable[[Any], object]
    refusals: tuple[type[Exception], ...] = (SafelightError,)
    kind: Callable[[Any], str] | None = None  # what an input is counted under


class _Board:
    """Numbers that the child leaves where its parent sees them, also after its death."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 64)
        self._whole, self._fraction = memoryview(self._memory)[:32].cast("q"), memoryview(self._memory)[32:].cast("d")

    case = property(lambda self: self._whole[0], lambda self, value: self._whole.__setitem__(0, value))
    accepted = property(lambda self: self._whole[1], lambda self, value: self._whole.__setitem__(1, value))
    refused = property(lambda self: self._whole[2], lambda self, value: self._whole.__setitem__(2, value))
    slowest = property(lambda self: self._fraction[0], lambda self, value: self._fraction.__setitem__(0, value))


def watch(
    trial: Trial, open_reader: Callable[[Trial], Reader], *, longest: float = LONGEST, audited: bool = True
) -> Outcome:
    """Feeds every case to a reader; after a crash or a hang a new child goes on with the next one. `audited`: what a
    reader of files does is watched; a whole command may start processes and write."""
    board, outcome = _Board(), Outcome()
    notes, position = trial.folder / "lost.jsonl", trial.cases.start
    kinds = trial.folder / "kinds.txt"
    notes.touch()
    kinds.touch()
    while position < trial.cases.stop:
        board.case = position
        parent, child = os.getpid(), os.fork()
        if not child:
            die_with(parent)
            _read_all(trial, range(position, trial.cases.stop), open_reader, board, notes, audited)
        ended = _stand_by(child, board, longest)
        if ended is None:
            break
        outcome.lost.append((board.case, ended))
        if UNOPENED in ended:
            break
        position = board.case + 1
    outcome.lost += [(case, words) for case, words in map(json.loads, notes.read_text().splitlines())]
    if (trial.folder / CANARY).exists():
        outcome.lost.append((-1, f"{CODE}: the canary was made"))
    outcome.count = board.accepted + board.refused
    outcome.tally.update({"refused in words": board.refused, "found harmless": board.accepted})
    outcome.tally.update(kinds.read_text().splitlines())
    outcome.tally[SLOWEST] = round(board.slowest * 1000)
    return outcome


def _stand_by(child: int, board: _Board, longest: float) -> str | None:
    """Until the child ends; what was wrong with the case it was at, or None."""
    case, since = -1, time.monotonic()
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            code = os.waitstatus_to_exitcode(status)
            if code == NOT_READY:
                return f"{CRASH}: {UNOPENED}"
            return None if code == 0 else f"{CRASH}: {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"
        if board.case != case:
            case, since = board.case, time.monotonic()
        elif time.monotonic() - since > longest:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return f"{HANG}: not read after {longest:.0f} s"
        time.sleep(0.01)


def _read_all(
    trial: Trial, cases: range, open_reader: Callable[[Trial], Reader], board: _Board, notes: Path, audited: bool
) -> None:
    """The life of a child."""
    code = NOT_READY
    try:
        os.chdir(trial.folder)  # where a canary would be made
        reader, crimes = open_reader(trial), list[str]()
        _limit_memory()
        if audited:
            _keep_watch(trial.folder, crimes)
        code = 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libtiff has much to say
        with open(notes, "a") as file, open(notes.with_name("kinds.txt"), "a") as counted:
            for case in cases:
                board.case = case
                content = reader.make(trial.draw(case))  # one that fails is a crash: the suite itself must be sound
                if reader.kind is not None:
                    print(reader.kind(content), file=counted, flush=True)
                began = time.process_time()
                wrong = _read(reader, content, board)
                board.slowest = max(board.slowest, time.process_time() - began)
                if crimes:
                    wrong = f"{CODE}: {crimes[0]}"
                    crimes.clear()
                if wrong:
                    file.write(json.dumps([case, wrong]) + "\n")
                    file.flush()
        code = 0
    except BaseException as error:
        print(f"{UNOPENED} or went down: {error!r}", file=sys.stderr)
    finally:
        os._exit(code)


def _read(reader: Reader, content: Any, board: _Board) -> str:
    """What was wrong with how an input was received, or nothing."""
    try:
        reader.read(content)
        board.accepted += 1
    except reader.refusals as error:
        board.refused += 1
        return "" if len(str(error)) > 8 else f"{WORDLESS}: {error!r}"
    except Exception as error:
        board.refused += 1
        return f"{FOREIGN}: {type(error).__name__}: {str(error)[:200]}"
    return ""


def _limit_memory() -> None:
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))


def _is_inside(path: Any, folder: str) -> bool:
    """Names without a folder are inside too: it is where the child stands, or a folder that was opened before."""
    name = os.fsdecode(path) if isinstance(path, str | bytes) else folder
    return ".." not in name.split("/") and (name.startswith((folder, os.devnull)) or not name.startswith("/"))


def _keep_watch(folder: Path, crimes: list[str]) -> None:
    """Python tells of every act that could run code, reach the network, or change a file: PEP 578."""
    root = str(Path(__file__).parents[1])
    trusted = (
        sys.prefix,
        sys.base_prefix,
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("purelib"),
        root,
        "<frozen",
    )

    def see(event: str, arguments: tuple[Any, ...]) -> None:
        if event in FORBIDDEN:
            crimes.append(f"{event} {arguments!r:.120}")
        elif event in CHANGING or event == "open":
            path = arguments[0]
            writes = event in CHANGING or (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if writes and not _is_inside(path, str(folder)):
                crimes.append(f"{event} {path!r:.120}")
        elif event == "exec" and not str(getattr(arguments[0], "co_filename", "")).startswith(trusted):
            crimes.append(f"exec of code from {getattr(arguments[0], 'co_filename', '?')!r:.120}")
        elif event == "compile" and not str(arguments[1]).startswith(trusted):
            crimes.append(f"compile {arguments!r:.120}")

    sys.addaudithook(see)
