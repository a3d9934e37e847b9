"""The parameters of a request, which are untrusted: every one has a format and a bound."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request

from safelight.pages.data.series import MOST_PIXELS
from safelight.vocabulary import LOSS_AT_LEVEL, SKILL_AT_LEVEL, Signal

RUN, PICTURE = re.compile(r"[0-9a-f]{12}"), re.compile(r"[0-9a-f]{16}")
NUMBER = re.compile(r"-?[0-9]{1,15}")
MAX_SIGNALS, MAX_COMPARED_RUNS, MAX_INTEGER = 256, 16, 1 << 53
FAMILIES = {"loss": LOSS_AT_LEVEL, "skill": SKILL_AT_LEVEL}
VERSION = re.compile(r"[0-9A-Za-z.-]{0,80}")


class StepWindow(NamedTuple):
    """Which steps, in how many spans, and how smooth."""

    first: int | None
    last: int | None
    pixels: int
    smooth: float


def window(request: Request, pixels: int) -> StepWindow:
    first, last = whole(request, "first"), whole(request, "last")
    if first is not None and last is not None and last < first:
        raise HTTPException(400, f"first is {first}, which is after last, {last}.")
    given = whole(request, "pixels")
    if given is not None and not 1 <= given <= MOST_PIXELS:
        raise HTTPException(400, f"pixels is {given}. It must be from 1 to {MOST_PIXELS:,}.")
    return StepWindow(first, last, given or pixels, half_life(request))


def whole(request: Request, name: str) -> int | None:
    text = single(request, name) or ""
    if text and not NUMBER.fullmatch(text):
        raise HTTPException(400, f"{name} must be a whole number.")
    return int(text) if text else None


def half_life(request: Request) -> float:
    text = single(request, "smooth") or "0"
    try:
        found = float(text) if len(text) <= 24 else math.nan
    except ValueError:
        found = math.nan
    if not 0 <= found <= 1e9:  # NaN too
        raise HTTPException(400, "smooth must be a number of steps from 0 to 1,000,000,000.")
    return found


def signals(request: Request) -> list[str]:
    names = [name for name in (single(request, "signals") or "").split(",") if name]
    if len(names) > MAX_SIGNALS:
        raise HTTPException(400, f"{len(names)} signals are requested at once; at most {MAX_SIGNALS} are answered.")
    return list(dict.fromkeys(names))


def family(request: Request) -> Signal:
    """What is requested of every noise level."""
    found = FAMILIES.get(single(request, "of") or "loss")
    if found is None:
        raise HTTPException(400, f"of must be one of {', '.join(FAMILIES)}.")
    return found


def version(request: Request) -> str:
    return _matching(VERSION, single(request, "version") or "", "version must be one that this server gave.")


def run_id(text: str | None) -> str:
    return _matching(RUN, text or "", "The id of a run is twelve digits and letters from a to f.")


def _matching(pattern: re.Pattern[str], text: str, words: str) -> str:
    if not pattern.fullmatch(text):
        raise HTTPException(400, words)
    return text


def run_ids(request: Request) -> list[str]:
    found = list(dict.fromkeys(run_id(each) for each in (single(request, "runs") or "").split(",") if each))
    if not 1 <= len(found) <= MAX_COMPARED_RUNS:
        raise HTTPException(
            400, f"runs must name from 1 to {MAX_COMPARED_RUNS} runs by their ids, with commas between."
        )
    return found


def single(request: Request, name: str) -> str | None:
    found = request.query_params.getlist(name)
    if len(found) > 1:
        raise HTTPException(400, f"{name} is given {len(found)} times.")
    return found[0] if found else None
