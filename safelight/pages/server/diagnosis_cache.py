"""Diagnoses runs that ended, one after the other in the background: no page waits for it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from safelight.pages.data.cards import Answers, is_diagnosed, run_rules
from safelight.pages.data.run_state import read_status
from safelight.pages.data.runs import FoundRun
from safelight.pages.server.run_cache import Signature, signature

MOST = 1000  # runs that are remembered


class DiagnosisCache:
    """Used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[Signature, Answers]] = {}
        self._waiting: set[str] = set()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="safelight-diagnosis")

    def diagnose(self, run: FoundRun) -> tuple[Answers, bool]:
        """(what the rules say, as far as it is known; whether the run ended). The first time they are only begun."""
        ended = is_diagnosed(read_status(run.folder))
        if ended and self._kept(run) is None:
            with self._lock:
                begin = run.id not in self._waiting
                self._waiting.add(run.id)
            if begin:
                self._executor.submit(self._look, run)
        return self.known(run), ended

    def known(self, run: FoundRun) -> Answers:
        """None where the rules did not run yet, or the run changed since."""
        kept = self._kept(run)
        return None if kept is None else kept[1]

    def _kept(self, run: FoundRun) -> tuple[Signature, Answers] | None:
        kept = self._known.get(run.id)
        return kept if kept is not None and kept[0] == signature(run) else None

    def _look(self, run: FoundRun) -> None:
        before = signature(run)
        try:
            found = run_rules(run.folder)
        except Exception:  # an untrusted record may raise anything; the page shows what was recorded
            found = None
        with self._lock:
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[run.id] = (before, found)
            self._waiting.discard(run.id)
