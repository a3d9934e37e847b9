"""Hostile words on the command line: every command, every flag, values of the wrong kind, size and alphabet."""

from __future__ import annotations

import functools
import random
import shutil
from dataclasses import fields
from importlib import import_module
from pathlib import Path

from safelight.cli import COMMANDS
from torture.command_line import TINY, Refusal, answer, stand_still, train_tiny
from torture.fuzz_child import Reader, watch
from torture.scenario import Scenario, Trial

NUMBERS = ("0", "1", "2", "8", "-1", "1.5", "1e18", "1e39", "1e308", "1e999", "-1e18", "nan", "inf", "-inf",
           "2147483648",
           "9223372036854775808", "18446744073709551616", "9" * 5000, "0x10", "1_000", "１２", "²", "5ep", "1e9ep",
           "best",
           "auto", "none", "1,2", "[1]", "true")  # fmt: skip
WORDS = ("a\0b", "script.py", "-m", "--check",
         "", " ", "-", "--", ".", "..", "/", "~", "x", "x" * 300, "x" * 70_000, "a\nb", "\x1b]52;c;aGk=\x07", "\u202ex",
         "\udcff", "\ud800", "ü..x", "é", "%s%n", "{}", "$(touch canary)", "../../etc/passwd", "*", "a=b", "=",
         "--set",
         "[/bold]", "[red]", "<script>", "digits", "shapes", "run", "runs", "words.txt", "empty", "broken.yaml",
         "out.png",
         "new/out", "cpu", "cuda", "cuda:99", "mps", "meta", "fp16", "bf16", "ddim", "euler", "lite0", "inception",
         "loss/mean", "LOS001", "nan", "get")  # fmt: skip
SMALL = ["--no-time", *(f"--set={key}={value}" for key, value in TINY.items())]
COMMANDS = list(COMMANDS)
KEYS = (
    "train.steps",
    "data.image_size",
    "data.source",
    "model.widths",
    "sample.count",
    "x",
    "",
    "train",
    "a.b.c",
    "\x1b",
)


def make(draw: random.Random, flags: dict[str, list[str]]) -> list[str]:
    """A command with some flags; most are its own, some another's, and some of no command."""
    verb = draw.choice([*COMMANDS]) if draw.random() < 0.97 else draw.choice([*WORDS, "-h", "--version"])
    own = flags.get(verb, ["--json"])
    arguments = [verb]
    for _ in range(draw.choice([0, 1, 1, 1, 2])):
        arguments.append(draw.choice(["run", "run", "digits", *WORDS]) if draw.random() < 0.8 else draw.choice(NUMBERS))
    for _ in range(draw.choice([0, 1, 1, 2, 3])):
        flag = draw.choice(own) if draw.random() < 0.9 else draw.choice([f for each in flags.values() for f in each])
        value = draw.choice(NUMBERS) if draw.random() < 0.6 else draw.choice(WORDS)
        if flag == "--set":
            value = f"{draw.choice(KEYS)}={value}"
        kind = draw.random()
        arguments += [f"{flag}={value}"] if kind < 0.3 else [flag] if kind < 0.4 else [flag, value]
    return [*arguments, *SMALL] if verb == "estimate" else arguments  # to trace a large model takes half a minute


def kind_of(arguments: list[str]) -> str:
    return f"of {arguments[0]}" if arguments[0] in COMMANDS else "of no command"


def flags_of(verb: str) -> list[str]:
    command = import_module(f"safelight.cli.{verb}").Command
    return [f"--{field.name.replace('_', '-')}" for field in fields(command)] + ["-o", "-n", "--help"]


def open_reader(trial: Trial) -> Reader:
    """Nothing is trained: what `train` and `resume` would start ends before it."""
    stand_still()
    shutil.rmtree("run", ignore_errors=True)  # of a child before this one
    train_tiny(Path("run"))
    Path("empty").mkdir(exist_ok=True)
    Path("words.txt").write_text("words")
    Path("script.py").write_text("print('nothing is trained')")
    Path("broken.yaml").write_text("train: [")
    import safelight.start
    from safelight.config.check import check
    from safelight.opened import read_config
    from safelight.run import open_run

    def train(config: object, **_: object) -> None:
        check(config)  # type: ignore[arg-type]
        raise Refusal("Nothing is trained in a trial.")

    def resume(path: Path, *, settings: dict[str, object], **_: object) -> None:
        check(safelight.start.resolve(base=read_config(open_run(path)), settings=settings))
        raise Refusal("Nothing is trained in a trial.")

    safelight.start.train, safelight.start.resume = train, resume  # type: ignore[assignment]
    return Reader(functools.partial(make, flags={verb: flags_of(verb) for verb in COMMANDS}), answer, kind=kind_of)


FUZZ_COMMANDS = Scenario(
    "fuzz: commands",
    "Argument lists for every command: flags of its own and of others, numbers of every size, names with control "
    "characters, lone surrogates and 70,000 letters, paths that are folders, missing or no text.",
    "argument lists", 250, 5_000, 100, 250, lambda trial: watch(trial, open_reader, audited=False, longest=120.0),
)  # fmt: skip
