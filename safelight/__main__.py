"""`python -m safelight` is `safelight`."""

import sys

from safelight.cli import main


def start() -> None:
    sys.exit(main())


if __name__ == "__main__":
    start()
