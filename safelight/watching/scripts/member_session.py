"""What `safelight run` does in a process that is not the first of those that train together."""

from __future__ import annotations

import os

from safelight.watching.ranks.joining import Members
from safelight.watching.scripts.tracebacks import hide_frames


class MemberSession:
    """Prints nothing and records nothing: the first process does, by what this one tells it."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._members = Members()
        hide_frames()

    def end(self) -> None:
        """When python leaves."""
        if os.getpid() == self._process:
            self._members.close()
