"""Starts python on a script, as `python SCRIPT ARGS` would, with the hook that puts it under watch.

Imports little: the script waits for it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

from safelight.errors import UsageError

BOOTSTRAP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bootstrap")
MODULE = "safelight"
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


class Options(NamedTuple):
    """What the script is watched with; python gets it through the environment."""

    run: str | None = None
    steps: int | None = None
    """The planned length; with a check, updates until the script is stopped."""
    loggers: tuple[str, ...] = ()
    quiet: bool = False
    handover: str | None = None
    """In a check, the file that the script's process leaves its notes in."""
    is_member: bool = False
    """Of a process that is not the first: it only tells that one of its share."""


def is_first_by_environment() -> bool:
    """Whether this is the first process of those that a launcher started, as far as the environment says."""
    return next((os.environ[name] for name in RANKS if os.environ.get(name)), "0") == "0"


def is_switched_off() -> bool:
    return os.environ.get("SAFELIGHT", "").lower() in ("off", "0", "no", "false")


def environment_for(options: Options) -> dict[str, str]:
    """Python looks for `sitecustomize` along PYTHONPATH before it runs anything; ours puts both back."""
    found = {name: value for name, value in os.environ.items() if name != "SAFELIGHT_PYTHONPATH"}
    before = os.environ.get("PYTHONPATH")
    if options.run is not None:  # a script may go to another folder before it trains
        options = options._replace(run=os.path.abspath(options.run))
    found["SAFELIGHT_RUN"] = json.dumps(options._asdict())
    if before is not None:
        found["SAFELIGHT_PYTHONPATH"] = before
    found["PYTHONPATH"] = f"{BOOTSTRAP}{os.pathsep}{before}" if before else BOOTSTRAP
    return found


def command_for(target: Sequence[str], *, owns_process: bool) -> list[str]:
    """`target`: a script or -m MODULE, and its arguments."""
    flags = interpreter_flags() if owns_process else []
    if owns_process and (sys.flags.no_site or sys.flags.ignore_environment or sys.flags.isolated):
        raise UsageError("`safelight run` cannot be used with -I, -E or -S: python would not load what watches.")
    if not sys.executable:
        raise UsageError("It is not known which python runs this, so it cannot be started on the script.")
    return [sys.executable, *flags, *target]


def interpreter_flags() -> list[str]:
    """What stands between python and safelight on the command line: -u, -O, -W error, -X dev."""
    head = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]
    if not head or head[-1] == sys.argv[0]:  # the installed command
        return head[:-1]
    *before, last = head
    if last == MODULE and before:
        *before, last = before  # "-m", or "-um" with other flags
    else:
        last = last.removesuffix(MODULE)  # "-msafelight"
    rest = last.removesuffix("m")
    return [*before, rest] if rest != "-" else before


def become(command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """This process goes on as python on the script: the same process for launchers, signals and terminals."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os.execve(command[0], list(command), environment)


def run_inside(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Where the process belongs to somebody else, who called `main`: the script's exit code."""
    import subprocess

    code = subprocess.call(command, env=environment)
    return code if code >= 0 else 128 - code


def run_script(options: Options, target: Sequence[str], *, owns_process: bool) -> int:
    """Does not return where the process is ours: python goes on in it."""
    refuse_target(target)
    command = command_for(target, owns_process=owns_process)
    if is_switched_off():
        environment = dict(os.environ)
    elif is_first_by_environment():
        refuse_options(options)
        environment = environment_for(options)
    else:
        environment = environment_for(Options(quiet=True, is_member=True))
    return become(command, environment) if owns_process else run_inside(command, environment)


def refuse_target(target: Sequence[str]) -> None:
    """What no system can start."""
    if any("\0" in word for word in target):
        raise UsageError("The script or one of its arguments holds a NUL byte, which no program can be started with.")


def refuse_options(options: Options) -> None:
    """Before the script starts, not after it has read its data."""
    if options.run is not None:
        from pathlib import Path

        from safelight.run import RunFolder

        if not options.run.strip() or "\0" in options.run:
            raise UsageError(f"--run is {options.run!r}, which is no name of a folder.")
        if os.path.lexists(options.run) and not os.path.isdir(options.run):
            raise UsageError(f"--run is {options.run}, which is not a folder. Choose another.")
        if os.path.lexists(RunFolder(Path(options.run)).record):
            raise UsageError(f"{options.run} already holds a record. Choose another --run.")
    if options.loggers:
        from safelight.record.sinks import chosen_loggers

        chosen_loggers(options.loggers)
