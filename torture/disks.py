"""Disks that die, fill up, answer short or lie, at one chosen call."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safelight.files import Disk

CALLS = [name for name in vars(Disk) if not name.startswith("_") and callable(getattr(Disk, name))]


class Died(BaseException):
    """The process ends here: no cleanup of ours may reach the disk any more."""


class QuickDisk(Disk):
    """The real one without waiting for the device: killing a process does not empty the page cache."""

    def sync(self, descriptor: int) -> None:
        pass

    def sync_directory(self, path: Path) -> None:
        pass


class FaultyDisk(QuickDisk):
    """Something happens at call number `at`; `fault` is one of `FAULTS`."""

    def __init__(self, at: int, fault: str) -> None:
        self.at, self.fault, self.calls, self.dead, self.broken = at, fault, 0, False, False
        self.names: list[str] = []

    @property
    def reached(self) -> bool:
        return self.calls >= self.at

    def answer(self, name: str, real: Callable[..., Any], *arguments: Any) -> Any:
        self.calls += 1
        self.names.append(name)
        here = self.calls == self.at
        if name == "close":
            real(*arguments)  # the kernel closes whatever happens; the fault comes on top
            real = _nothing
        if self.dead or (here and self.fault.startswith("exit")):
            if here and self.fault == "exit, torn" and name == "write":
                os.write(arguments[0], arguments[1][: len(arguments[1]) // 2])
            self.dead = True
            raise Died
        if self.broken or (here and self.fault in ERRORS):
            number, self.broken = ERRORS.get(self.fault, (0, False))
            raise OSError(number, os.strerror(number))
        if here and name == "write" and self.fault in ("short write", "lying write"):
            half = max(len(arguments[1]) // 2, 1)
            written = real(arguments[0], arguments[1][:half])
            return written if self.fault == "short write" else len(arguments[1])
        if here and name == "read" and self.fault == "short read":
            return real(arguments[0], max(arguments[1] // 2, 1))
        return real(*arguments)


ERRORS = {
    "ENOSPC once": (errno.ENOSPC, False),
    "EIO once": (errno.EIO, False),
    "ENOSPC from now on": (errno.ENOSPC, True),
    "EIO from now on": (errno.EIO, True),
}
FAULTS = ["exit", "exit, torn", *ERRORS, "short write", "lying write"]  # of saving
LOAD_FAULTS = ["exit", *ERRORS, "short read"]
NEVER = 10**9


def places(fault: str, action: Callable[[FaultyDisk], object]) -> list[int]:
    """The numbers of all calls of an action at which this fault makes a difference, and one beyond the last."""
    disk = FaultyDisk(NEVER, fault)
    action(disk)
    only = {"exit, torn": "write", "short write": "write", "lying write": "write", "short read": "read"}.get(fault)
    chosen = [i + 1 for i, name in enumerate(disk.names) if only in (None, name)]
    return [*chosen, disk.calls + 1]


def _nothing(*_: Any) -> None:
    pass


def _intercept(name: str) -> Callable[..., Any]:
    def call(self: FaultyDisk, *arguments: Any) -> Any:
        return self.answer(name, functools.partial(getattr(super(FaultyDisk, self), name)), *arguments)

    return call


for _name in CALLS:
    setattr(FaultyDisk, _name, _intercept(_name))
