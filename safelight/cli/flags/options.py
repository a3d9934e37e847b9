"""The flags that several commands share, and how they become settings.

Imports what `--help` does not need only where it is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import FlagCreatePairsOff, Positional, UseAppendAction, arg
from tyro.constructors import PrimitiveConstructorSpec

from safelight.errors import UsageError

if TYPE_CHECKING:
    from safelight.config import Config

OnStart = Callable[[Path, Callable[[str], None]], object]


MAX_NUMBER = 10**12  # of a number on the command line, unless its flag has a limit of its own
MOST_IMAGES = 10**6  # that one command draws


def _flag(metavar: str, text: str | None = None) -> Any:
    return arg(metavar=metavar, help=text, help_behavior_hint="")


# Strings, not numbers: `resolve` converts them, so that a flag, --set and YAML give the same error.
Number = Annotated[str | None, _flag("N")]
Word = Annotated[str | None, _flag("NAME")]


def _read_place(words: list[str]) -> Path:
    """A path from the command line. Without a name it would be the current folder."""
    if not words[0].strip() or "\0" in words[0]:
        raise ValueError("a file or folder needs a name, but none was given")
    return Path(words[0])


PathArgument = Annotated[
    Path,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="PATH",
        instance_from_str=_read_place,
        is_instance=lambda found: isinstance(found, Path),
        str_from_instance=lambda path: [str(path)],
    ),
]
File = Annotated[PathArgument | None, _flag("FILE")]
Folder = Annotated[PathArgument | None, _flag("DIR")]
Flag = Annotated[bool, FlagCreatePairsOff]
Settings = Annotated[tuple[str, ...], UseAppendAction, arg(metavar="KEY=VALUE", help_behavior_hint="(repeatable)")]
Source = Annotated[str | None, Positional, _flag("[DATA]")]

# The same flag with the same help in several commands.
RunPath = Annotated[PathArgument, Positional, arg(metavar="RUN", help="The run folder.")]
Json = Annotated[bool, arg(help="Print JSON instead of a page.")]
Preset = Annotated[str | None, _flag("NAME", "digits, tiny, small or base.")]
ConfigFile = Annotated[PathArgument | None, _flag("FILE", "YAML file of settings, over the preset.")]
Steps = Annotated[str | None, _flag("N", "Optimizer steps of the whole run.")]
Epochs = Annotated[str | None, _flag("N", "Length in passes over the images, in place of --steps.")]
BatchSize = Annotated[str | None, _flag("N", "Images per optimizer step.")]
ImageSize = Annotated[str | None, _flag("N", "Side of the square the model sees, in pixels.")]
Device = Annotated[str | None, _flag("NAME", "auto, cpu, cuda, cuda:1 or mps.")]
Precision = Annotated[str | None, _flag("NAME", "fp32, bf16, fp16 or auto.")]
Accumulate = Annotated[str | None, _flag("N", "Micro-batches per step, or auto.")]
CheckpointEvery = Annotated[str | None, _flag("N", "Steps between checkpoints, or epochs: 5ep.")]
SampleEvery = Annotated[str | None, _flag("N", "Steps between pictures, or epochs: 1ep; 0: none.")]
EvaluateEvery = Annotated[str | None, _flag("N", "Steps between evaluations of samples, or epochs: 2ep; 0: none.")]
Workers = Annotated[str | None, _flag("N", "Threads that prepare batches ahead.")]
NoDashboard = Annotated[Flag, arg(help="Do not start the dashboard; without a terminal it is not started anyway.")]
Notify = Annotated[
    str | None,
    _flag("URL", "Send findings, the end and the death of the run to a webhook, Slack, Discord or ntfy:TOPIC."),
]
Step = Annotated[str | None, _flag("N", "Checkpoint to use, or best; without it, the newest.")]
EmaWidth = Annotated[str | None, _flag("WIDTH", "Relative width of another EMA, rebuilt from snapshots: 0.05, 0.15, …")]
Raw = Annotated[bool, arg(help="Use the raw weights instead of the EMA.")]
SamplerName = Annotated[
    str | None, _flag("NAME", "ddim, ddpm, dpm-solver++, euler or heun; without it, the sampler of the run.")
]
Objective = Annotated[str | None, _flag("NAME", "v, epsilon, sample, flow or edm: what is learnt.")]
SampleSteps = Annotated[str | None, _flag("N", "Denoising steps per image.")]
Guidance = Annotated[str | None, _flag("N", "Classifier-free guidance of conditional models; 1: none.")]


def settings_from(command: object) -> dict[str, Any]:
    """The settings that a command's flags stand for; --set comes last and so wins."""
    from safelight.config.presets import FLAGS, settings_of_objective

    given: dict[str, Any] = dict(settings_of_objective(getattr(command, "objective", None)))
    given |= {key: getattr(command, name, None) for name, key in FLAGS.items()}
    found = {key: value for key, value in given.items() if value is not None and value is not False}
    for word in getattr(command, "set", ()):
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"--set takes KEY=VALUE, but {word!r} has no “=”. For example: --set train.steps=500")
        found[key.strip()] = value.strip()
    return found


def config_from(command: Any) -> Config:
    """default < preset < file < flags."""
    from safelight.config.presets import default_preset, fit_to_source
    from safelight.config.resolve import resolve

    settings = settings_from(command)
    preset = command.preset or default_preset(settings, command.config)
    settings = fit_to_source(command.preset, settings, command.config, _say_once) | settings
    return resolve(preset=preset, file=command.config, settings=settings, say=_say_once)


def _say_once(text: str) -> None:
    """By the first of the processes that a launcher started."""
    if os.environ.get("RANK", "0") == "0":
        print(text, file=sys.stderr)


def say_loading() -> None:
    """Before the first long import: on a busy machine it takes a while, and nothing else is to be seen of it."""
    _say_once("Loading torch …")


def whole(flag: str, word: str | None, at_least: int | None = None, at_most: int = MAX_NUMBER) -> int | None:
    """A whole number from the command line."""
    return None if word is None else number(flag, word, at_least, at_most)


def number(flag: str, word: str, at_least: int | None = None, at_most: int = MAX_NUMBER) -> int:
    from safelight.config.resolve import convert

    value = convert(flag, word, int)
    if at_least is not None and value < at_least:
        raise UsageError(f"{flag} is {value}, but it must be at least {at_least}.")
    if abs(value) > at_most:
        raise UsageError(f"{flag} is {word[:60]}, but it must be at most {at_most:,}.")
    return value


def real(flag: str, word: str, at_most: float = float(MAX_NUMBER)) -> float:
    """A number that need not be whole."""
    from safelight.config.resolve import convert

    value = convert(flag, word, float)
    if abs(value) > at_most:
        raise UsageError(f"{flag} is {value:g}, but it must be at most {at_most:,g}.")
    return value


def make_room(folder: Path) -> None:
    """The folder that something will be written into."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def writing(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}. Choose another place with -o.") from error


def starting(no_dashboard: bool, notify: str | None) -> OnStart:
    """What is started beside a run: the dashboard, where somebody watches the terminal and did not refuse it, and
    messages to those who are away."""
    from safelight.pages.notify.address import parse
    from safelight.pages.notify.process import VARIABLE, start_notifier
    from safelight.pages.server.launch import start_beside, wanted

    url = notify or os.environ.get(VARIABLE)
    address = parse(url) if url else None  # a wrong one is reported before anything is trained

    def start(run: Path, say: Callable[[str], None]) -> None:
        if wanted() and not no_dashboard:
            start_beside(run, say)
        if address is not None:
            start_notifier(run, address, say)

    return start


def print_once(what: object) -> None:
    """By the first of the processes that a launcher started."""
    if os.environ.get("RANK", "0") == "0":
        print(what)
