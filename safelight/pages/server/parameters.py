"""The parameters of a request, which are untrusted: every one has a format and a bound."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from starlette.requests import Request

from safelight.pages.data.series import MOST_PIXELS

RUN, PICTURE = re.compile(r"[0-9a-f]{12}"), re.compile(r"[0-9a-f]{16}")
NUMBER = re.compile(r"-?[0-9]{1,15}")
MOST_SIGNALS, MOST_COMPARED, LARGEST = 256, 16, 1 << 53
VERSION = re.compile(r"[0-9A-Za-z.-]{0,80}")


class Wrong(Exception):
    """An invalid parameter; answered with code 400."""


@dataclass(frozen=True, slots=True)
class Window:
    """Which steps, in how many spans, and how smooth."""

    first: int | None
    last: int | None
    pixels: int
    smooth: float


def window(request: Request, pixels: int) -> Window:
    first, last = whole(request, "first"), whole(request, "last")
    if first is not None and last is not None and last < first:
        raise Wrong(f"first is {first}, which is after last, {last}.")
    asked = whole(request, "pixels")
    if asked is not None and not 1 <= asked <= MOST_PIXELS:
        raise Wrong(f"pixels is {asked}. It must be from 1 to {MOST_PIXELS:,}.")
    return Window(first, last, asked or pixels, half_life(request))


def whole(request: Request, name: str) -> int | None:
    text = single(request, name)
    if text is None or text == "":
        return None
    if not NUMBER.fullmatch(text):
        raise Wrong(f"{name} must be a whole number.")
    return int(text)


def half_life(request: Request) -> float:
    text = single(request, "smooth") or "0"
    try:
        found = float(text) if len(text) <= 24 else math.nan
    except ValueError:
        found = math.nan
    if not 0 <= found <= 1e9:  # NaN too
        raise Wrong("smooth must be a number of steps from 0 to 1,000,000,000.")
    return found


def signals(request: Request) -> list[str]:
    names = [name for name in (single(request, "signals") or "").split(",") if name]
    if len(names) > MOST_SIGNALS:
        raise Wrong(f"{len(names)} signals are asked for at once; at most {MOST_SIGNALS} are answered.")
    return list(dict.fromkeys(names))


def version(request: Request) -> str:
    text = single(request, "version") or ""
    if not VERSION.fullmatch(text):
        raise Wrong("version must be one that this server gave.")
    return text


def run_id(text: str | None) -> str:
    if text is None or not RUN.fullmatch(text):
        raise Wrong("The id of a run is twelve digits and letters from a to f.")
    return text


def run_ids(request: Request) -> list[str]:
    found = list(dict.fromkeys(run_id(each) for each in (single(request, "runs") or "").split(",") if each))
    if not 1 <= len(found) <= MOST_COMPARED:
        raise Wrong(f"runs must name from 1 to {MOST_COMPARED} runs by their ids, with commas between.")
    return found


def single(request: Request, name: str) -> str | None:
    found = request.query_params.getlist(name)
    if len(found) > 1:
        raise Wrong(f"{name} is given {len(found)} times.")
    return found[0] if found else None
