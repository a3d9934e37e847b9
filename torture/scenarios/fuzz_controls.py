"""Careless readers: each does what no reader of ours may do, and the watchman must see it."""

from __future__ import annotations

import functools
import json
import os
import pickle
import random
from collections.abc import Callable
from typing import Any

import yaml

from torture.fuzz_child import CODE, CRASH, FOREIGN, HANG, LONGEST, WORDLESS, Reader, watch
from torture.mutation import PICKLE
from torture.scenario import Outcome, Scenario, Trial

SOUND, HOSTILE = b"{}", b"!!python/object/apply:os.system ['touch canary']"


def make(draw: random.Random, evil: bytes) -> bytes:
    return draw.choice([SOUND, SOUND, evil])


def abort_at_trifles(content: bytes) -> None:
    """Aborts at what it does not know."""
    if content != SOUND:
        os.abort()


def wait_for_ever(content: bytes) -> None:
    """Never comes back from what it does not know."""
    while content != SOUND:
        pass


def run_yaml(content: bytes) -> Any:
    """Lets YAML build any object."""
    return yaml.unsafe_load(content)


def run_pickle(content: bytes) -> Any:
    """Opens pickles."""
    return content if content == SOUND else pickle.loads(content)


def leave_the_traceback(content: bytes) -> Any:
    """Lets the error of a parser through."""
    return json.loads(content)


def say_nothing(content: bytes) -> None:
    """Refuses without a word."""
    if content != SOUND:
        raise ValueError


def feed(
    trial: Trial, read: Callable[[bytes], Any], evil: bytes, refusals: tuple[type[Exception], ...], longest: float
) -> Outcome:
    return watch(trial, lambda _: Reader(functools.partial(make, evil=evil), read, refusals), longest=longest)


def _control(
    name: str,
    read: Callable[[bytes], Any],
    symptom: str,
    evil: bytes = b"[",
    refusals: tuple[type[Exception], ...] = (),
    longest: float = LONGEST,
) -> Scenario:
    act = functools.partial(feed, read=read, evil=evil, refusals=refusals, longest=longest)
    return Scenario(f"fuzz: {name}", read.__doc__ or "", "inputs", 1, 4, 4, 4, act, symptom=symptom)


ABORTS = _control("a reader that crashes", abort_at_trifles, CRASH)
WAITS = _control("a reader that hangs", wait_for_ever, HANG, longest=2.0)
YAML = _control("unsafe YAML", run_yaml, CODE, HOSTILE)
UNPICKLES = _control("a reader that unpickles", run_pickle, CODE, PICKLE)
TRACEBACK = _control("a traceback", leave_the_traceback, FOREIGN)
SILENT = _control("a refusal without words", say_nothing, WORDLESS, refusals=(ValueError,))
