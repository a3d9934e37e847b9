"""What FSDP2 says of its reduction; the loops of test_joining.py show it at work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from joint_loops import WRAPPED, Small, batches, note, noted, run_together

from safelight.watching.ranks.fully_sharded import FullySharded

PREPARED: dict[str, Any] = {
    "as it comes": lambda model: None,
    "kept back": lambda model: model.set_requires_gradient_sync(False),
}


def test_gradients_that_are_kept_back_are_seen(tmp_path: Path) -> None:
    def act(rank: int, size: int) -> None:
        for name, prepare in PREPARED.items():
            model = WRAPPED["fsdp2"](Small())
            prepare(model)
            x, _, t = next(batches(rank, size, 1))
            model(x, t).square().mean().backward()
            told = FullySharded(list(model.parameters())).describe(size)
            note(tmp_path, f"{name}-{rank}", **{key: each.tolist() for key, each in told.items()})

    run_together(tmp_path, act)
    for name, withheld in (("as it comes", 0), ("kept back", 1)):
        assert noted(tmp_path, f"{name}-1") == {"withheld": [withheld], "multiple": [1.0]}


def test_models_that_are_not_sharded_say_nothing() -> None:
    assert FullySharded(list(Small().parameters())).describe(2) == {}
