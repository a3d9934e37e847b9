"""How the command starts: before torch is loaded, which reads the environment once."""

from __future__ import annotations

import os

import pytest

from safelight.__main__ import limit_spinning


@pytest.mark.parametrize(
    ("words", "before", "after"),
    [
        (["train", "digits"], {}, {"GOMP_SPINCOUNT": "10000"}),
        ([], {}, {"GOMP_SPINCOUNT": "10000"}),
        (["run", "train.py"], {}, {}),  # the script's own environment
        (["train"], {"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
        (["train"], {"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
    ],
)
def test_threads_spin_for_a_short_time_unless_something_else_is_wanted(
    words: list[str], before: dict[str, str], after: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", dict(before))
    limit_spinning(words)
    assert os.environ == after
