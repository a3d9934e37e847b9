"""Hostile values for every setting, trained for two steps where they are valid."""

from __future__ import annotations

import functools
import random
import shutil
from pathlib import Path
from typing import Any, get_args, get_origin

from safelight.config.resolve import types_of_fields
from torture.command_line import TINY, answer, leave_after, stand_still
from torture.fuzz_child import Reader, watch
from torture.scenario import Scenario, Trial

NUMBERS = ("0", "1", "2", "3", "4", "7", "8", "64", "-1", "0.5", "0.999999", "1.0", "1e-300", "1e-30", "1e-8", "1e3",
           "1e6",
           "1e8", "1e12", "1e18", "1e39", "1e300", "1e999", "nan", "inf", "2147483647", "2147483648", "1e4", "1e5",
           "9223372036854775808", "18446744073709551615", "9" * 400, "5ep", "0.1ep", "none", "auto", "true",
           "")  # fmt: skip
WORDS = ("", "none", "x", "true", "false", "\0", "\x1b[2J", "\u202e", "digits", "shapes", "empty",
         "x" * 5000, "[1, 2]", "{}",
         "#12zz34", "#ffffff", "1 2 3", "8 8", "8 8 8", "8,16", "0", "0.05 0.1", "tensorboard", "jsonl",
         "cpu")  # fmt: skip
SLOW = ("data.cache", "data.scan_workers", "log.to", "model.compile")  # other places, processes, loggers, a compiler


def make(draw: random.Random, keys: dict[str, Any]) -> list[str]:
    # A thousand denoising steps are valid, and take minutes of nothing new.
    chosen = draw.sample([*keys], draw.choice([1, 1, 1, 2, 2, 3]))
    given = TINY | {key: value_for(keys[key], draw) for key in chosen}
    given["sample.steps"] = "2" if given["sample.steps"] in ("1e3", "1e4", "1e5") else given["sample.steps"]
    return ["train", "--run", "run", *(f"--set={key}={value}" for key, value in given.items())]


def value_for(hint: Any, draw: random.Random) -> str:
    """Half of the words that a choice has are its own; numbers are of every size."""
    literals = [word for kind in (hint, *get_args(hint)) if get_origin(kind) is not None for word in get_args(kind)]
    own = [word for word in literals if isinstance(word, str)]
    if own and draw.random() < 0.7:
        return draw.choice(own)
    if hint is bool and draw.random() < 0.8:
        return draw.choice(["true", "false"])
    return draw.choice(NUMBERS if draw.random() < 0.8 else WORDS)


def trained() -> str:
    """What became of the case before this one."""
    return (
        "trained for two steps" if Path("run/checkpoints/step_00000002").is_dir() else "refused before the first step"
    )


def open_reader(trial: Trial) -> Reader:
    stand_still()
    leave_after(2)
    Path("empty").mkdir(exist_ok=True)

    def read(arguments: list[str]) -> None:
        shutil.rmtree("run", ignore_errors=True)
        answer(arguments)

    keys = {key: hint for key, hint in types_of_fields().items() if key not in SLOW}
    return Reader(functools.partial(make, keys=keys), read, kind=lambda _: trained())


FUZZ_SETTINGS = Scenario(
    "fuzz: settings",
    "One to three settings of a small run on digits with values of every size and kind; what is valid is "
    "trained for two "
    "steps, saved and left.",
    "settings", 40, 3_000, 20, 40, lambda trial: watch(trial, open_reader, audited=False, longest=120.0),
)  # fmt: skip
