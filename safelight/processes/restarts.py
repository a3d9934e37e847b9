"""Restarts by a launcher: the same command again continues the run, unless it would only fail again."""

from __future__ import annotations

import os
from pathlib import Path

from safelight.errors import Stopped, UsageError
from safelight.processes.launcher import agent_store
from safelight.run import RunFolder

MAX_FAILURES = 3  # failures at one step


def is_restart(run: Path | None) -> bool:
    """Whether this launcher has started this very run before: a folder that was there already is none of its runs."""
    if run is None:
        if int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) > 0:
            raise UsageError("A run that may be restarted needs a name to be found by. Add --run DIR.")
        return False
    return _was_started(run) and RunFolder(run).config.is_file()


def _was_started(run: Path) -> bool:
    """`SLURM_RESTART_COUNT`: of a job that requeued itself. `SAFELIGHT_UNATTENDED=1`: nobody is there to look, and
    whatever starts this command starts it again and again, as Kubernetes does, which does not say how often."""
    if os.environ.get("SAFELIGHT_UNATTENDED") == "1" or int(os.environ.get("SLURM_RESTART_COUNT") or 0) > 0:
        return True
    if (store := agent_store()) is not None:
        return store.check([_key(run)])
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def note_start(run: Path) -> None:
    """By the first process, once the run is its own."""
    if (store := agent_store()) is not None:
        store.set(_key(run), "1")


def _key(run: Path) -> str:
    return f"started/{run.resolve()}"


def note_failure(folder: RunFolder, step: int, words: str) -> None:
    """What ended the run, in run.json."""
    folder.update_status(failures=[*_failures(folder), {"step": step, "words": words}][-MAX_FAILURES:])


def refuse_hopeless(folder: RunFolder) -> None:
    """Only where a launcher tries again by itself: a person may try as often as they like."""
    if not _was_started(folder.path):
        if _failures(folder):
            folder.update_status(failures=[])
        return
    status = folder.status()
    if status.get("status") in ("stopped", "refused"):
        raise Stopped(
            f"{folder.path} was stopped by a diagnosis ({status.get('last_finding')}): to start it again would change "
            f"nothing. `safelight doctor {folder.path}` has the evidence."
        )
    if status.get("status") == "training":  # killed before it could say anything
        note_failure(folder, int(status.get("step", 0)), "it was killed without a word")
    failures = _failures(folder)
    steps = {failure["step"] for failure in failures}
    if len(failures) == MAX_FAILURES and len(steps) == 1:
        folder.update_status(status="stopped", last_finding=f"failed {MAX_FAILURES} times at step {steps.pop()}")
        raise Stopped(
            f"{folder.path} failed {MAX_FAILURES} times at step {failures[-1]['step']}; the last time: "
            f"{failures[-1]['words']} It is not started again. Look for the cause with `safelight doctor "
            f"{folder.path}`; then continue by hand: safelight resume {folder.path}"
        )


def _failures(folder: RunFolder) -> list[dict[str, object]]:
    found = folder.status().get("failures", [])
    return found if isinstance(found, list) else []
