"""The runs that are served: found again now and then, and answers and diagnoses kept while nothing changes."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from safelight.pages.data.cards import RuleFindings, run_rules, should_run_rules
from safelight.pages.data.gallery import FoundPicture, current_path, find_pictures
from safelight.pages.data.overview import open_run_history
from safelight.pages.data.run_state import read_status
from safelight.pages.data.runs import FoundRun, find_runs

SCAN_INTERVAL, CACHE_SECONDS = 2.0, 1.0
NEW_SECONDS = 0.1  # after a search, in which an unknown run is not searched for again: anybody may request any id
MAX_BYTES, MAX_ALBUMS, MAX_DIAGNOSED = 64 << 20, 32, 1000

Signature = tuple[tuple[int, int] | None, ...]


class RunCache:
    """Used by several threads."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(roots)
        self._lock = threading.Lock()
        self._runs: dict[str, FoundRun] = {}
        self._looked = -SCAN_INTERVAL
        self._answers: OrderedDict[str, tuple[Signature, float, bytes]] = OrderedDict()
        self._bytes = 0
        self._pictures: dict[str, dict[str, FoundPicture]] = {}  # of each run, by id

    def runs(self, patience: float = SCAN_INTERVAL) -> list[FoundRun]:
        """As they were found at most so many seconds ago."""
        with self._lock:
            if time.monotonic() - self._looked >= patience:
                self._runs = {run.id: run for run in find_runs(self._roots)}
                self._looked = time.monotonic()
            return list(self._runs.values())

    def run(self, run_id: str) -> FoundRun | None:
        """By its id; one that is not known yet may be new."""
        if run_id not in self._runs:
            self.runs(NEW_SECONDS)
        return self._runs.get(run_id)

    def picture(self, run: FoundRun, picture: str) -> Path | None:
        """Its file. All pictures of a run are listed only where an unknown one is requested."""
        listed = self._pictures.get(run.id, {}).get(picture)
        if listed is not None and (path := current_path(run.folder, listed)) is not None:
            return path
        if len(self._pictures) > MAX_ALBUMS:
            self._pictures.clear()
        with open_run_history(run.folder) as history:
            self._pictures[run.id] = found = find_pictures(history, run.folder)
        return found[picture].path if picture in found else None

    def known(self, key: str, run: FoundRun) -> bytes | None:
        """What was answered before, as long as nothing of the run changed."""
        with self._lock:
            kept = self._answers.get(key)
        return kept[2] if kept is not None and kept[0] == signature(run) else None

    def answer(self, key: str, run: FoundRun, make: Callable[[], bytes], *, lasting: bool) -> bytes:
        """`lasting`: it depends on the files of the run alone, and not on the time of day."""
        now, current = time.monotonic(), signature(run)
        with self._lock:
            kept = self._answers.get(key)
            if kept is not None and kept[0] == current and (lasting or now - kept[1] < CACHE_SECONDS):
                self._answers.move_to_end(key)
                return kept[2]
        made = make()
        with self._lock:
            self._forget(key)
            self._answers[key] = (current, now, made)
            self._bytes += len(made)
            while self._bytes > MAX_BYTES and self._answers:
                self._forget(next(iter(self._answers)))
        return made

    def _forget(self, key: str) -> None:
        kept = self._answers.pop(key, None)
        self._bytes -= 0 if kept is None else len(kept[2])


class DiagnosisCache:
    """Runs that ended are diagnosed one after the other in the background: no page waits. Used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._diagnoses: dict[str, tuple[Signature, Future[RuleFindings]]] = {}
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="safelight-diagnosis")

    def diagnose(self, run: FoundRun) -> tuple[RuleFindings, bool]:
        """(what the rules say, as far as it is known; whether the run ended). The first time they are only begun."""
        ended, current = should_run_rules(read_status(run.folder)), signature(run)
        with self._lock:
            if ended and (run.id not in self._diagnoses or self._diagnoses[run.id][0] != current):
                if len(self._diagnoses) >= MAX_DIAGNOSED:
                    self._diagnoses.clear()
                self._diagnoses[run.id] = current, self._executor.submit(run_rules, run.folder)
        return self.known(run), ended

    def known(self, run: FoundRun) -> RuleFindings:
        """None if the rules did not run yet, or the run changed since."""
        before, diagnosis = self._diagnoses.get(run.id, (None, None))
        return diagnosis.result() if diagnosis and diagnosis.done() and before == signature(run) else None


def signature(run: FoundRun) -> Signature:
    """Changes with every commit to the record, every heartbeat and every new setting."""
    folder = run.folder
    wal = folder.record.with_name(f"{folder.record.name}-wal")
    return tuple(map(_touched, (folder.record, wal, folder.status_file, folder.config, folder.data)))


def _touched(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size) if found.st_size else None  # a reader makes and removes an empty log
