"""docs/tutorial.md has a row for every part of the chapters, and names nothing that does not exist."""

from __future__ import annotations

import importlib
import inspect
import re
from collections import Counter
from pathlib import Path

import pytest

import safelight
from safelight.diagnosis.rules import RULES
from safelight.vocabulary import SIGNALS
from safelight.watching.loop import Watch

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
PARTS = {"Monitoring": 57, "The training loop": 63, "What goes wrong": 99}
FILES = ("samples/", "checkpoints/")  # of a run folder, not signals
MODELS_OF_YOUR_OWN = {
    "initialise": "safelight.model.unet",
    "checkpoint_blocks": "safelight.model.unet",
    "add_spectral_norm": "safelight.model.unet",
    "parameter_groups": "safelight.training.optimizer",
    "rate_scheduler": "safelight.training.optimizer",
}


def rows(text: str) -> list[list[str]]:
    """The cells of every row that begins with numbers."""
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines()]
    return [row for row in cells if re.fullmatch(r"[\d, ]+", row[0])]


def spans(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def unknown_names(text: str) -> list[str]:
    """What a text names in code and does not exist: Python names and arguments, signals, codes of findings."""
    known = {signal.name for signal in SIGNALS}
    codes = {rule.code for rule in RULES}
    found = [code for code in re.findall(r"\b[A-Z]{3}\d{3}\b", text) if code not in codes]
    for span in spans(text):
        for name in re.findall(r"(?<![\w/])(?:sl|safelight)\.[A-Za-z_.]+\w", span):
            found += [] if _resolves(name) else [name]
        for name in re.findall(r"(?<![\w.])watch\.(\w+)", span):
            found += [] if hasattr(Watch, name) or name in inspect.signature(Watch).parameters else [f"watch.{name}"]
        for name, arguments in re.findall(r"(?:sl|safelight)\.([\w.]+)\(([^)]*)\)", span):
            found += [word for word in re.findall(r"(\w+)=", arguments) if not _takes(name, word)]
        if re.fullmatch(r"[a-z]+/[a-z_]+", span) and span not in known and not span.startswith(FILES):
            found.append(span)
        if (called := re.match(r"(\w+)\(", span)) and called[1] in MODELS_OF_YOUR_OWN:
            home = importlib.import_module(MODELS_OF_YOUR_OWN[called[1]])
            found += [] if hasattr(home, called[1]) else [called[1]]
    return found


def _object(name: str) -> object:
    """A name such as sl.EMA.update; modules on the way are imported."""
    owner: object = safelight
    path = "safelight"
    for word in name.split(".")[1:]:
        path = f"{path}.{word}"
        if not hasattr(owner, word):
            importlib.import_module(path)
        owner = getattr(owner, word)
    return owner


def _resolves(name: str) -> bool:
    try:
        _object(name)
    except (AttributeError, ModuleNotFoundError):
        # A name of the tutorial: the page says that these lead further.
        return name.partition(".")[2] in safelight._TUTORIAL_NAMES
    return True


def _takes(function: str, argument: str) -> bool:
    accepted = inspect.signature(_object(f"safelight.{function}")).parameters  # pyright: ignore[reportArgumentType]
    return argument in accepted or any(each.kind is each.VAR_KEYWORD for each in accepted.values())


def unknown_flags(text: str, flags: dict[str, set[str]]) -> list[str]:
    """`--flag` that the command before it does not have, or, without a command, that none has."""
    every = set[str]().union(*flags.values())
    found = []
    for span in spans(text):
        verb = re.match(r"safelight (\w+)", span)
        known = flags.get(verb[1], set()) if verb else every
        found += [flag for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*", span) if flag not in known]
    return found


@pytest.fixture(scope="module")
def flags() -> dict[str, set[str]]:
    """Of every command, as docs/commands.md lists them: tests/test_docs.py compares that page with the commands."""
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## safelight (\w+)\n(.*?)(?=^## |\Z)", text, re.M | re.S))
    return {verb: set(re.findall(r"--[a-z][a-z-]*", body)) for verb, body in sections.items()}


def test_every_part_of_the_chapters_has_one_row() -> None:
    count = Counter(int(number) for row in rows(PAGE) for number in row[0].split(","))
    assert count == Counter(range(1, sum(PARTS.values()) + 1))
    assert all(len(row) == 4 and all(row) for row in rows(PAGE))
    said = [int(number) for number in re.findall(r"have (\d+), (\d+) and (\d+) parts", PAGE)[0]]
    assert said == list(PARTS.values())


def test_nothing_is_named_that_does_not_exist(flags: dict[str, set[str]]) -> None:
    assert unknown_names(PAGE) == []
    assert unknown_flags(PAGE, flags) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("`sl.Emma(model)`", "sl.Emma"),
        ("`safelight.evaluate.frechett`", "safelight.evaluate.frechett"),
        ("`sl.EMA.apply`", "sl.EMA.apply"),
        ("`watch.converging`", "watch.converging"),
        ("`sl.watch(..., simpler=…)`", "simpler"),
        ("`loss/smoth`", "loss/smoth"),
        ("LRA099", "LRA099"),
    ],
)
def test_a_name_that_does_not_exist_would_be_noticed(text: str, name: str) -> None:
    assert unknown_names(text) == [name]


def test_a_flag_that_does_not_exist_would_be_noticed(flags: dict[str, set[str]]) -> None:
    assert unknown_flags("`--epochz 3`, `safelight sample RUN --lr 1`, `--lr 1`", flags) == ["--epochz", "--lr"]


def test_every_function_for_models_of_your_own_is_named() -> None:
    last = PAGE.rpartition("\n\n")[2]
    assert [name for name in MODELS_OF_YOUR_OWN if f"`{name}`" not in last] == []
