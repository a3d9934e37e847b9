"""The command line: one file per verb, each imported only when it is called."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence

VERBS = {
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
    "dashboard": "show runs in the browser, live",
    "report": "write a run into one HTML file",
    "data": "inspect a set of images before training on it",
    "estimate": "report what a run would need before it starts",
    "settings": "find a setting by a word",
    "docs": "print a page of the documentation, or search it",
    "weights": "show or fetch the weights that distances are measured with",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; user errors end in a message, not a traceback."""
    owns_process = arguments is None
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        from safelight import __version__

        print(f"safelight {__version__}")
        return 0
    verb, rest = arguments[0], arguments[1:]
    if verb not in VERBS:
        from safelight.config.resolve import nearest

        return _fail(f"There is no command {verb!r}{nearest(verb, VERBS)} `safelight --help` lists them.", 2)
    return _run_script(rest, owns_process) if verb == "run" else _run(verb, rest)


def usage() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {verb:<{width}}  {about}" for verb, about in VERBS.items())
    return (
        "Safelight trains diffusion models and keeps watch over the training.\n\nusage: safelight COMMAND [OPTIONS]\n\n"
        f"{verbs}\n\nsafelight COMMAND --help shows more. To start: safelight train"
    )


def _run_script(rest: list[str], owns_process: bool) -> int:
    """A script starts about as soon as python would start it: without options of ours, no parser is imported."""
    if rest and (not rest[0].startswith("-") or rest[0] in ("-", "-m")):
        from safelight.watching.scripts.launch import Options, run_script

        return _end_in_words(lambda: run_script(Options(), rest, owns_process=owns_process))
    import tyro

    from safelight.cli.run import Command, divide

    ours, target = divide(rest)
    parsed = tyro.cli(Command, prog="safelight run", args=ours, config=(tyro.conf.FlagCreatePairsOff,))
    return _end_in_words(lambda: parsed.run_script(target, owns_process=owns_process))


def _run(verb: str, rest: list[str]) -> int:
    # Else torch prints the stacks of its C++ wherever a process of many ends, around the words that say why.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from contextlib import ExitStack, redirect_stderr, redirect_stdout
    from dataclasses import fields

    import tyro

    from safelight.errors import SafelightError

    command = importlib.import_module(f"safelight.cli.{verb}").Command
    from safelight.config.translation import translate

    try:
        rest, notes = translate(rest, {field.name for field in fields(command)})
    except SafelightError as error:
        return error.exit_code if not _is_first_here() else _fail(str(error), error.exit_code)
    if _is_first_here():
        for note in notes:
            print(note, file=sys.stderr)
    # --help and unknown flags end here.
    with ExitStack() as stack:
        if not _is_first_here():
            nowhere = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(redirect_stdout(nowhere))
            stack.enter_context(redirect_stderr(nowhere))
        parsed = tyro.cli(command, prog=f"safelight {verb}", args=rest, config=(tyro.conf.FlagCreatePairsOff,))
    return _end_in_words(parsed.run_command)


def _end_in_words(act: Callable[[], int | None]) -> int:
    """The exit code of a command; user errors end in a message, not a traceback."""
    from safelight.errors import SafelightError

    try:
        return act() or 0
    except SafelightError as error:
        # An error that every process finds is printed once on each machine.
        silent = error.reported or (error.reported is None and not _is_first_here())
        return error.exit_code if silent else _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail("Interrupted.", 130)
    except BrokenPipeError:
        return 141
    except OSError as error:  # a full disk, a name too long: what no command expected
        return _fail(f"{error.filename or 'A file'} cannot be used: {error.strerror or error}.", 1)
    except MemoryError:
        return _fail("Out of memory. `safelight estimate` reports what fits.", 4)


def _is_first_here() -> bool:
    """Of the processes that a launcher started on this machine."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def _fail(text: str, code: int) -> int:
    from safelight.terminal import print_error

    print_error(text)
    return code
