"""`safelight run --check`: the script in a process of its own, stopped after some updates, judged by its record."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from safelight.diagnosis import Diagnosis
from safelight.errors import PreflightError
from safelight.watching.scripts.launch import (
    Options,
    command_for,
    environment_for,
    is_switched_off,
    refuse_options,
    refuse_target,
)
from safelight.watching.scripts.notes import Notes
from safelight.watching.scripts.report import ScriptReport, report_on

STEPS = 20


def check_script(
    options: Options,
    target: Sequence[str],
    *,
    owns_process: bool,
    to_stderr: bool = False,
    narrow: Callable[[Diagnosis], Diagnosis] = lambda found: found,
) -> ScriptReport:
    """`to_stderr`: what the script prints. `narrow`: to the findings that count."""
    if is_switched_off():
        raise PreflightError("SAFELIGHT is off, so nothing was checked.")
    refuse_options(options)
    refuse_target(target)
    command = command_for(target, owns_process=owns_process)
    with tempfile.TemporaryDirectory(prefix="safelight-check-") as room:
        run, handover = options.run or str(Path(room) / "run"), Path(room) / "notes.json"
        given = options._replace(run=run, steps=options.steps or STEPS, handover=str(handover), quiet=True)
        code = run_child(command, environment_for(given), to_stderr=to_stderr)
        return report_on(" ".join(target), Path(run), Notes.read(handover), code, narrow)


def run_child(command: Sequence[str], environment: dict[str, str], *, to_stderr: bool) -> int:
    """Its exit code, 128 and the signal where one ended it. Signals that end a process are meant for the script."""
    child = subprocess.Popen(command, env=environment, stdout=2 if to_stderr else None)
    with forwarded(child):
        while True:
            try:
                code = child.wait()
                return code if code >= 0 else 128 - code
            except KeyboardInterrupt:  # the terminal sends it to the script as well
                continue


@contextmanager
def forwarded(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """A launcher ends the process that it started."""
    try:
        before = signal.signal(signal.SIGTERM, lambda *_: child.send_signal(signal.SIGTERM))
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
