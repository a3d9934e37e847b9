"""Starts the dashboard for a training, if it is wanted and none runs yet: detached, with low priority."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import safelight
from safelight.errors import CheckpointError
from safelight.files import Disk, make_directories, read_plain, write_atomically
from safelight.pages.data.runs import describe
from safelight.pages.server.address import ServerAddress, tunnel

LARGEST_NOTE = 10_000  # bytes
NICE = 10  # the training comes first
IDLE_HOURS = "24"  # without a page open: then it ends by itself
START_SECONDS, ANSWER_SECONDS = 20.0, 0.5  # a busy machine takes a while


def wanted() -> bool:
    """A person looks at this terminal: no pipe, no CI, no test."""
    silent = any(os.environ.get(name) for name in ("CI", "PYTEST_CURRENT_TEST", "SAFELIGHT_NO_DASHBOARD"))
    first = os.environ.get("RANK", "0") == "0" and os.environ.get("SLURM_PROCID", "0") == "0"
    return not silent and first and all(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr))


def start_beside(run: Path, say: Callable[[str], None]) -> threading.Thread:
    """Says where the folder of a run can be looked at, as soon as it can; comes back at once and never raises."""
    thread = threading.Thread(target=_start_and_report, args=(run, say), daemon=True)
    thread.start()
    return thread


def page_of(address: ServerAddress, run: Path) -> str:
    """The page of one run."""
    head, question, token = address.url.partition("?")
    return f"{head}{question}{token}#/run/{describe(run).id}"


def _start_and_report(run: Path, say: Callable[[str], None]) -> None:
    try:
        root = run.absolute().parent
        address = find_listening(root) or _start(root)
        if address is None:
            say("The dashboard did not start; `safelight dashboard` reports why. The training continues without it.")
            return
        say(f"Dashboard: {page_of(address, run)}")
        if line := tunnel(address):
            say(f"From your own machine: {line}")
    except Exception as error:  # whatever it is: it is not worth a training
        say(f"The dashboard did not start ({type(error).__name__}: {error}). The training continues without it.")


def find_listening(root: Path) -> ServerAddress | None:
    """A dashboard for this folder that answers."""
    try:
        note = json.loads(read_plain(note_path(root), LARGEST_NOTE))
        address = ServerAddress(str(note["host"]), int(note["port"]))
    except (OSError, ValueError, KeyError, TypeError, CheckpointError):
        return None
    return address if _answers(address, str(note.get("mark"))) else None


def _answers(address: ServerAddress, mark: str) -> bool:
    """Whether it is really ours: another program may have the port by now."""
    connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/api/hello")
        answer = json.loads(connection.getresponse().read(4096))
        return isinstance(answer, dict) and answer.get("mark") == mark
    except (OSError, ValueError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _start(root: Path) -> ServerAddress | None:
    # -P: modules in the working directory must not be imported.
    command = [sys.executable, "-P", "-m", "safelight", "dashboard", str(root), "--idle", IDLE_HOURS]
    paths = [str(Path(safelight.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C ends the training, and not what shows it
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"},
    )
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
    threading.Thread(target=process.wait, daemon=True).start()  # one that ends early must not stay as a zombie
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.returncode is None:
        if (address := find_listening(root)) is not None:
            return address
        time.sleep(0.1)
    return None


@contextlib.contextmanager
def keep_note(roots: Sequence[Path], address: ServerAddress) -> Iterator[str]:
    """Keeps a file with the address while a dashboard listens; none without a cache folder."""
    mark = hashlib.sha256(os.urandom(32)).hexdigest()[:16]
    path = note_path(roots[0]) if len(roots) == 1 and address.token is None else None
    disk = Disk(None if path is None else path.parent.parent)
    if path is not None:
        note = {"host": address.host, "port": address.port, "pid": os.getpid(), "mark": mark}
        with contextlib.suppress(OSError):
            make_directories(path.parent.parent)
            make_directories(path.parent, disk)
            write_atomically(path, json.dumps(note).encode(), disk)
    try:
        yield mark
    finally:
        with contextlib.suppress(OSError, ValueError, AttributeError, CheckpointError):
            if path is not None and json.loads(read_plain(path, LARGEST_NOTE, disk)).get("pid") == os.getpid():
                disk.unlink(path)


def note_path(root: Path) -> Path:
    chosen = os.environ.get("SAFELIGHT_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = Path(chosen).expanduser() if chosen else base / "safelight"
    return home / "dashboards" / f"{hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]}.json"
