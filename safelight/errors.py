"""Every way a run can end, each with its exit code. Interrupted has 75 or 130."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class SafelightError(Exception):
    """An error with a message for the user; the command line prints it and exits with `exit_code`."""

    exit_code = 1
    reported: bool | None = None  # by another process already; False where this process must report it
    is_of_output = False  # of stdout itself: nothing more can be printed there


class UsageError(SafelightError):
    """A wrong word on the command line or in a config."""

    exit_code = 2


class RunBusy(UsageError):
    """Another process holds the run folder."""


class RunTaken(RunBusy):
    """The lock on the folder was removed while this process trained, and another process has it now."""

    def __init__(self, folder: Path, busy: RunBusy) -> None:
        super().__init__(
            f"{busy} The lock of {folder} was removed while this process trained there. It ends here and writes "
            "nothing more; the other process continues from the last checkpoint, to the same bytes."
        )


class RunFolderLost(SafelightError):
    """The folder of a run was moved, deleted or unmounted while it trained. `moved_to`: where it is now, if known."""

    def __init__(self, folder: Path, moved_to: Path | None) -> None:
        super().__init__(f"The run folder {folder} was {'moved' if moved_to else 'deleted or unmounted'}.")
        self.folder, self.moved_to = folder, moved_to


class DataError(SafelightError):
    """Images that are missing, unreadable or too few."""

    exit_code = 3


class PreflightError(SafelightError):
    """Something is wrong that was seen before the first step."""

    exit_code = 3


class OutOfMemory(SafelightError):
    """The model or the batch does not fit."""

    exit_code = 4


class Stopped(SafelightError):
    """The run was ended by a diagnosis, which `finding` names."""

    exit_code = 5

    def __init__(self, message: str, *, finding: str = "") -> None:
        super().__init__(message)
        self.finding = finding


class CheckpointError(SafelightError):
    """Nothing that can be loaded, or nowhere to save."""


class RecordError(SafelightError):
    """A record that cannot be read."""


class ProcessLost(SafelightError):
    """Another process of the run died, hangs or cannot be reached."""

    exit_code = 75

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} A step needs all of them, so this one ends too; nothing that was saved is lost. Continue with "
            "`safelight resume` and the same launcher: as many processes as before, or any other number."
        )


class FollowedError(SafelightError):
    """Ended because another process did, which reports why."""

    reported = True

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Interrupted(SafelightError):
    """Stopped by a signal; the state was saved first."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
