"""The command line: one file per verb, each imported only when it is called."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence

LONGEST_ARGUMENT = 4096  # as long as a path may be
COMMANDS = {
    "demo": "train on handwritten digits, and leave samples and a model: five minutes",
    "train": "train a model on a set of images",
    "run": "watch a training script of your own, unchanged, or check it",
    "resume": "continue a run exactly where it stopped",
    "sample": "draw images from a run",
    "export": "write a pipeline that diffusers loads",
    "evaluate": "measure how good samples are",
    "metrics": "show what a run measured",
    "compare": "put runs side by side",
    "doctor": "report what is wrong with a run, and why",
    "explain": "explain a finding or a symptom",
    "runs": "list runs with their state, loss, skill and worst finding",
    "dashboard": "show runs in the browser, live",
    "mcp": "let an agent read runs, over the Model Context Protocol",
    "report": "write a run into one HTML file",
    "data": "inspect a set of images before training on it",
    "estimate": "report what a run would need before it starts",
    "settings": "find a setting by a word",
    "docs": "print a page of the documentation, or search it",
    "weights": "show or fetch the weights that distances are measured with",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code. Every error is reported in words, never as a traceback."""
    owns_process, given = arguments is None, list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["run"]:  # whose streams are the script's
        return _run_reporting_errors(lambda: _run_script(given[1:], owns_process), given)
    from safelight.printing import OutputLost, discard_output, printable_streams
    from safelight.processes.interrupts import signals_as_interrupts

    with printable_streams(), signals_as_interrupts():
        try:
            try:
                return _run_reporting_errors(lambda: _choose(given), given)
            finally:  # also where the parser of flags ends the process
                sys.stdout.flush()
        except OutputLost as lost:
            discard_output()
            return lost.exit_code if lost.reported else _fail(str(lost), lost.exit_code)


def _run_reporting_errors(act: Callable[[], int], arguments: list[str]) -> int:
    """The exit code of a command, with everything that it did not foresee put into words."""
    from safelight.errors import Interrupted, SafelightError

    try:
        return act()
    except Interrupted as stopped:  # as it was wanted: no error
        if _is_first_on_this_machine():
            print(stopped, file=sys.stderr)
        return stopped.exit_code
    except SafelightError as error:
        if error.is_of_output:
            raise
        # An error that every process finds is printed once on each machine.
        silent = error.reported or (error.reported is None and not _is_first_on_this_machine())
        return error.exit_code if silent else _fail(str(error), error.exit_code)
    except KeyboardInterrupt as interrupt:
        print("Interrupted.", file=sys.stderr)
        return getattr(interrupt, "exit_code", 130)
    except OSError as error:  # a full disk, a name too long: what no command expected
        if error.strerror is not None and not error.filename and not _is_somewhere():
            return _fail("The folder that this was started in is gone: change to another one.", 1)
        if error.strerror is not None:
            return _fail(f"{error.filename or 'A file'} cannot be used: {error.strerror}.", 1)
        return _crash(error, arguments)
    except MemoryError:
        return _fail("Out of memory. `safelight estimate` reports what fits.", 4)
    except Exception as error:
        return _crash(error, arguments)


def _is_somewhere() -> bool:
    try:
        return bool(os.getcwd())
    except OSError:
        return False


def _crash(error: Exception, arguments: list[str]) -> int:
    from safelight.printing import report_crash

    report_crash(error, arguments)
    return 1


def _choose(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        from safelight import __version__

        print(f"safelight {__version__}")
        return 0
    if arguments[0] == "--completion":
        from safelight.cli.flags.completion import completion

        print(completion("".join(arguments[1:2]), COMMANDS), end="")
        return 0
    verb, rest = arguments[0], arguments[1:]
    if verb not in COMMANDS:
        from safelight.config.resolve import nearest

        return _fail(
            f"There is no command {verb[:60]!r}{nearest(verb[:60], COMMANDS)} `safelight --help` lists them.", 2
        )
    if any(len(word) > LONGEST_ARGUMENT for word in rest):
        return _fail(f"An argument is longer than {LONGEST_ARGUMENT:,} characters, which no name or number is.", 2)
    _run(verb, rest)
    return 0


def usage() -> str:
    width = max(map(len, COMMANDS))
    verbs = "\n".join(f"  {verb:<{width}}  {about}" for verb, about in COMMANDS.items())
    return (
        "Safelight trains diffusion models and keeps watch over the training.\n"
        "usage: safelight COMMAND [OPTIONS]\n\n"
        f"{verbs}\nsafelight COMMAND --help shows more. To start: safelight demo"
    )


def _run_script(rest: list[str], owns_process: bool) -> int:
    """A script starts about as soon as python would start it: without options of ours, no parser is imported."""
    if rest and (not rest[0].startswith("-") or rest[0] in ("-", "-m")):
        from safelight.watching.scripts.launch import Options, run_script

        return run_script(Options(), rest, owns_process=owns_process)
    import tyro

    from safelight.cli.run import Command, divide

    ours, target = divide(rest)
    parsed = tyro.cli(Command, prog="safelight run", args=ours, config=(tyro.conf.FlagCreatePairsOff,))
    return parsed.run_script(target, owns_process=owns_process) or 0


def _run(verb: str, rest: list[str]) -> None:
    # Otherwise torch prints C++ stacks around our message when one of several processes ends.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from contextlib import ExitStack, redirect_stderr, redirect_stdout
    from dataclasses import fields

    import tyro

    command = importlib.import_module(f"safelight.cli.{verb}").Command
    from safelight.config.translation import translate

    rest, notes = translate(rest, {field.name for field in fields(command)})
    if _is_first_on_this_machine():
        for note in notes:
            print(note, file=sys.stderr)
    # --help and unknown flags end here.
    with ExitStack() as stack:
        if not _is_first_on_this_machine():
            nowhere = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(redirect_stdout(nowhere))
            stack.enter_context(redirect_stderr(nowhere))
        parsed = tyro.cli(command, prog=f"safelight {verb}", args=rest, config=(tyro.conf.FlagCreatePairsOff,))
    parsed.run_command()


def _is_first_on_this_machine() -> bool:
    """Whether this is the first of the processes that a launcher started on this machine."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def _fail(text: str, code: int) -> int:
    from safelight.printing import print_error

    print_error(text)
    return code
