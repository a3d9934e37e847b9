"""`python -m safelight` is `safelight`."""

import os
import sys

from safelight.cli import main

# Threads of one step wait for each other in a loop, 300,000 turns long by default: while another program holds a core,
# they turn for nothing. 10,000 turns cost nothing on a quiet machine, 0 turns 30 %: bench/neighbours.py.
SPINS, SPINS_VARIABLE = "10000", "GOMP_SPINCOUNT"


def start() -> None:
    open_missing_streams()
    limit_spinning(sys.argv[1:])
    try:
        code = main()
    except KeyboardInterrupt:  # before or after the command itself
        code = 130
    if code and os.environ.get("WORLD_SIZE", "1") != "1":
        # Interpreter and gloo would wait, before they go, for what was begun with a process that does not answer. All
        # that had to be written is on disk, and a launcher starts nothing again while one of its processes stays.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def limit_spinning(words: list[str]) -> None:
    """Before torch is loaded, which reads it once. A script under `safelight run` keeps its own environment."""
    if words[:1] != ["run"] and "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault(SPINS_VARIABLE, SPINS)


def open_missing_streams() -> None:
    """Opens closed standard streams: the next file that is opened would otherwise take the number of one, and get its
    text."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


if __name__ == "__main__":
    start()
