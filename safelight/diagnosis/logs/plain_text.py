"""What a script printed: `step 100 loss 0.5`, progress bars, dictionaries, tables between dashes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safelight.diagnosis.logs.cells import STEP, Row
from safelight.diagnosis.logs.columns import HELD_OUT, role_of
from safelight.diagnosis.logs.text_file import lines_of

NUMBER = r"[-+]?(?:(?:\d(?:[\d,]*\d)?\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf(?:inity)?)(?!\w|\.\d)"
PAIR = re.compile(
    r"(?<![\w./])([A-Za-z_][\w./]*(?:[ -](?!nan\b|inf)[A-Za-z_][\w./]*){0,3})['\"]?\s*"
    r"(?:\([\w ]*\))?\s*(?:[:=|#]\s*|\[\s*|\s)\s*"
    rf"(?:tensor\(|['\"])?\s*({NUMBER})",
    re.IGNORECASE,
)
BAR = re.compile(r"(\d+)/(\d+)\s*\[")  # of tqdm: 100/1000 [00:10<01:30, 9.9it/s, loss=0.5]
OF_TOTAL = re.compile(r"\b(?:step|iter|iteration|it|batch)s?\b\W{0,3}\[?\s*(\d+)\s*/\s*(\d+)", re.IGNORECASE)
RULED = re.compile(r"\s*[-=+]{5,}\s*")
COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
MAX_LINE_LENGTH = 2000  # characters of a line that are looked at
AT_END = 0.8  # of a total: where a counter that goes back belongs to the next epoch


def rows(path: Path) -> Iterator[Row]:
    counter = _Counter()
    table: dict[str, Any] = {}
    step: str | None = None
    for line in lines_of(path):
        line = COLOURS.sub("", line[:MAX_LINE_LENGTH])
        if RULED.fullmatch(line):  # tables of OpenAI's logger: one number on each line
            if table:
                yield table
            table = {}
            continue
        found = _pairs(line)
        if line.lstrip().startswith("|") and line.rstrip().endswith("|") and len(found) <= 1:
            table |= found
            continue
        at = counter.step(line)
        if at is not None:
            found = {STEP: at, **{name: each for name, each in found.items() if role_of(name) != "step"}}
        named = next((name for name in found if role_of(name) == "step"), None)
        if named is None and step is not None and found:
            found[STEP] = step
        elif named is not None and not any(role_of(name) == "loss" for name in found):
            step = found[named]  # the step stands on a line of its own, before what belongs to it
        if any(role_of(name) not in (None, "step", "epoch") for name in found):
            yield found
    if table:
        yield table


def _pairs(line: str) -> dict[str, Any]:
    """Names of the field with a number behind them."""
    found: dict[str, Any] = {}
    for match in PAIR.finditer(line):
        words = re.split(r"[ -]", match[1])
        held = HELD_OUT & {word.lower() for word in words}
        names = (" ".join(words[place:]) for place in range(len(words)))
        known = next((name for name in names if role_of(name) is not None), None)
        if known is not None:
            found.setdefault(f"validation {known}" if held and role_of(known) == "loss" else known, match[2])
    return found


class _Counter:
    """Progress bars, and steps of a total, count anew in every epoch: what is done of those before is added."""

    def __init__(self) -> None:
        self._done, self._last, self._total = 0, 0, 0

    def step(self, line: str) -> int | None:
        found = BAR.findall(line) or OF_TOTAL.findall(line)
        if not found or "loss" not in line.lower():
            return None
        now, total = map(int, found[-1])
        if now < self._last and total == self._total and self._last > AT_END * total:
            self._done += total
        self._last, self._total = now, total
        return self._done + now
