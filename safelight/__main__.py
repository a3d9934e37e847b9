"""`python -m safelight` is `safelight`."""

import os
import sys

from safelight.cli import main


def start() -> None:
    code = main()
    if code and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        # Interpreter and gloo would wait, before they go, for what was begun with a process that does not answer. All
        # that had to be written is on disk, and a launcher starts nothing again while one of its processes stays.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    start()
