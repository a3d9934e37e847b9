"""What is said may be lost; the run that says it may not."""

from __future__ import annotations

import errno
import io
import os

from rich.console import Console

from safelight.terminal import Terminal


class FullDisk(io.StringIO):
    """A log on a disk without room."""

    full = True

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(text)


def test_a_full_disk_under_the_log_costs_its_lines_only() -> None:
    log = FullDisk()
    terminal = Terminal(Console(file=log, width=200))
    terminal.say("lost")
    log.full = False
    terminal.say("found")
    assert "found" in log.getvalue()
