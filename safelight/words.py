"""Small things put into words, the same everywhere: sizes, numbers, and names that may be no text."""

from __future__ import annotations

import math
import re
import sys
from contextlib import suppress

DIGITS = 4  # of a number in a finding: what a record holds is float32, exact to seven


def round_number(number: float, digits: int = DIGITS) -> float:
    """As a person writes it: 0.01, not 0.010000000474974513. Whole numbers stay whole."""
    if not math.isfinite(number) or float(number).is_integer():
        return number
    return float(f"{number:.{digits}g}")


def with_article(noun: str) -> str:
    """An EMA, a tensor."""
    return f"{'an' if noun[:1] in 'AEIOUaeiou' else 'a'} {noun}"


def round_rate(rate: float) -> float:
    """A learning rate that is advised: one digit."""
    return round_number(rate, 1) if rate < 1 else float(f"{rate:.1g}")


def in_bytes(count: float) -> str:
    """1.5 GB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


# Steers a terminal, hides text, turns its direction, or is no character: C0, C1, soft hyphen, bidi controls, invisible
# format characters, line separators, lone surrogates, tags. Joiners stay: scripts need them.
UNPRINTABLE = (
    r"\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    r"\U000e0000-\U000e0fff"
)
_IN_A_NAME = re.compile(f"[{UNPRINTABLE}]")
_IN_LINES = re.compile(rf"\x1b\[[0-9;]{{0,32}}m|(?![\n\t])[{UNPRINTABLE}]")
_COLOUR = "\x1b["


def printable(name: str) -> str:
    """Text from outside in one line that no terminal obeys: names of files, classes and signals, words of a record."""
    return _IN_A_NAME.sub(_escaped, name)


def printable_lines(text: str) -> str:
    """What a program prints: lines, tabs and colours stay."""
    return _IN_LINES.sub(lambda found: found[0] if found[0].startswith(_COLOUR) else _escaped(found), text)


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "surrogatepass").decode("ascii")


def one_line(text: str) -> str:
    """A message, whatever names and errors stand in it: it cannot look like two."""
    return printable(" ".join(text.split("\n")).strip())


def first_line(error: BaseException, most: int = 200) -> str:
    """Of what an error says, which may be nothing."""
    return (str(error).strip().splitlines() or [""])[0][:most]


def megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def with_error(value: float, error: float) -> str:
    """31 ± 2, 0.05 ± 0.15: as many digits as the error allows, one more where it begins with a 1."""
    if not error > 0 or not math.isfinite(error):
        return f"{value:.3g}"
    size = math.floor(math.log10(error))
    places = min(max(0, (error < 2 * 10.0**size) - size), 6)
    return f"{value:.{places}f} ± {error:.{places}f}"


def lower_first(text: str) -> str:
    """A sentence that is continued from another."""
    return text[:1].lower() + text[1:]


def print_to_stderr(words: str) -> None:
    """As `say` of a part in somebody's own loop, unless they give another."""
    with suppress(OSError, ValueError):  # a log on a full disk costs its lines, never the loop
        print(one_line(words).encode("utf-8", "replace").decode(), file=sys.stderr, flush=True)


def plain(text: str) -> str:
    """For comparing: lower case, one space between words, no dashes."""
    return " ".join(re.sub(r"[-_/]+", " ", text.lower()).split())


def stem(word: str) -> str:
    """Without its ending, so that `spikes` finds `spike`."""
    return re.sub(r"(ing|ed|es|s)$", "", word) if len(word) > 4 else word


def begins_a_word(text: str, beginning: str) -> bool:
    return re.search(rf"\b{re.escape(beginning)}", text) is not None
