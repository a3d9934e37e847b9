"""The process that sends messages about a run: beside the training, so that it never waits, and outlives its death."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import safelight
from safelight.errors import UsageError
from safelight.pages.notify.address import NotifyAddress, parse
from safelight.pages.notify.messages import Message, RunMessages
from safelight.run import RunFolder

LOOK_SECONDS = 2.0  # as often as a run has a heartbeat
WAITS = (2.0, 10.0, 60.0)  # seconds before each next attempt
MAX_COMPLAINTS = 3
VARIABLE = "SAFELIGHT_NOTIFY"


def start_notifier(run: Path, address: NotifyAddress, say: Callable[[str], None]) -> None:
    """Comes back at once and never raises. The address goes through a pipe: lists of processes do not show it."""
    paths = [str(Path(safelight.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    environment |= {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "safelight.pages.notify.process", str(run.absolute()), str(os.getpid())],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True, env=environment,
        )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(f"{address.url}\n")
        process.stdin.close()
    except OSError as error:
        say(f"No messages will be sent ({error.strerror}). The training continues without them.")


def follow(
    messages: RunMessages, send: Callable[[Message], str | None], sleep: Callable[[float], None] = time.sleep
) -> None:
    """Until the run is over. A message that does not arrive is tried again, and then given up."""
    complaints = 0
    pending = [messages.started()]
    while True:
        for message in pending:
            problem = send(message)
            for wait in WAITS:
                if problem is not None:
                    sleep(wait)
                    problem = send(message)
            if problem is not None and complaints < MAX_COMPLAINTS:
                complaints += 1
                print(f"A message was not sent: {problem}.", file=sys.stderr, flush=True)
        if messages.is_over:
            return
        sleep(LOOK_SECONDS)
        pending = list(messages.new())


def main() -> None:
    run, pid = Path(sys.argv[1]), int(sys.argv[2])
    with contextlib.suppress(UsageError, KeyboardInterrupt):
        follow(RunMessages(RunFolder(run), lambda: os.getppid() == pid), parse(sys.stdin.readline().strip()).send)


if __name__ == "__main__":
    main()
