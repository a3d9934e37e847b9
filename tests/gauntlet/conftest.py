"""The verdicts that the tests of the score are written with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gauntlet.scenario import Verdict

Say = Callable[..., Verdict]


@pytest.fixture
def verdict() -> Say:
    """`said`: causes, each as (cause, severity, look)."""

    def make(kind: Any, said: list[tuple[str, str, int]], *, causes: Any = (), **facts: Any) -> Verdict:
        return Verdict(
            facts.pop("id", "some-fault"),
            kind,
            "mixture",
            facts.pop("seed", 0),
            causes=tuple(tuple(each) for each in causes),
            findings=[{"cause": cause, "severity": severity, "step": look} for cause, severity, look in said],
            looks={cause: look for cause, severity, look in said if severity != "info"},
            **facts,
        )

    return make
