"""Every parameter of a request has a format and a bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from safelight.pages.server import parameters
from safelight.vocabulary import LOSS_AT_LEVEL, SKILL_AT_LEVEL


def request(query: str) -> Request:
    return Request({"type": "http", "query_string": query.encode(), "headers": []})


def window(asked: Request) -> tuple:
    return tuple(parameters.window(asked, 800))


@pytest.mark.parametrize(
    ("read", "query", "value"),
    [
        (window, "", (None, None, 800, 0.0)),
        (window, "first=5&last=5&pixels=4000&smooth=2.5", (5, 5, 4000, 2.5)),
        (parameters.signals, "signals=a,b,,a", ["a", "b"]),
        (parameters.family, "", LOSS_AT_LEVEL),
        (parameters.family, "of=skill", SKILL_AT_LEVEL),
        (parameters.version, "version=1-0.abc", "1-0.abc"),
        (parameters.run_ids, "runs=0123456789ab,0123456789ab", ["0123456789ab"]),
    ],
)
def test_what_is_accepted(read: Callable[[Request], Any], query: str, value: object) -> None:
    assert read(request(query)) == value


@pytest.mark.parametrize(
    ("read", "query", "words"),
    [
        (window, "first=6&last=5", "first is 6, which is after last, 5"),
        (window, "pixels=0", "from 1 to 4,000"),
        (window, "pixels=4001", "from 1 to 4,000"),
        (window, "first=1.5", "first must be a whole number"),
        (window, "first=1&first=2", "first is given 2 times"),
        (window, "smooth=nan", "smooth must be a number of steps"),
        (window, "smooth=-1", "smooth must be a number of steps"),
        (window, f"smooth={'1' * 25}", "smooth must be a number of steps"),
        (parameters.signals, "signals=" + ",".join(map(str, range(257))), "257 signals are requested"),
        (parameters.family, "of=gradient", "of must be one of loss, skill"),
        (parameters.version, "version=<b>", "one that this server gave"),
        (parameters.run_ids, "runs=", "from 1 to 16 runs"),
        (parameters.run_ids, "runs=0123456789AB", "twelve digits and letters"),
    ],
)
def test_what_is_refused(read: Callable[[Request], Any], query: str, words: str) -> None:
    with pytest.raises(HTTPException, match=words) as refused:
        read(request(query))
    assert refused.value.status_code == 400
