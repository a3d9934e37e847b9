"""A checkpoint that is whole and does not fit: refused in words, and nothing is touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import tiny

from safelight.checkpoints.snapshot import Loaded
from safelight.data.prepare import open_images
from safelight.errors import CheckpointError
from safelight.training.build import Setup, build, infer_data_settings

Change = Callable[[dict[str, Any], dict[str, Any]], object]


@pytest.fixture(scope="module")
def parts() -> Iterator[Setup]:
    config = tiny()
    images = open_images(config.data)
    made = build(infer_data_settings(config, images), images, lambda words: None)
    made.stepper.step(made.loader.prepare(0), 0)
    made.state.counters.step = 1
    yield made
    made.loader.close()


def loaded(parts: Setup) -> Loaded:
    snapshot = parts.state.snapshot()
    return Loaded(1, Path("step_00000001"), snapshot.tensors, dict(snapshot.state), {})


def first(group: dict[str, Any]) -> str:
    return sorted(group)[0]


MISFITS: dict[str, tuple[Change, str]] = {
    "no optimizer": (lambda t, s: t.pop("optimizer"), "has no optimizer.safetensors"),
    "an average is missing": (lambda t, s: t["ema"].pop(first(t["ema"])), "in ema, 1 tensors are missing"),
    "one number for many": (lambda t, s: t["ema"].update({first(t["ema"]): torch.ones(1)}), "another shape or kind"),
    "double": (lambda t, s: t["model"].update({k: v.double() for k, v in t["model"].items()}), "another shape or kind"),
    "half of the moments": (
        lambda t, s: t["optimizer"].pop(first(t["optimizer"])),
        "in optimizer, 1 tensors are missing",
    ),
    "moments of a stranger": (lambda t, s: t["optimizer"].update({"x/step": torch.ones(())}), "1 are unknown"),
    "monitors": (lambda t, s: t["monitors"].clear(), "in monitors"),
    "step in words": (lambda t, s: s.update(step="7"), "step is '7', which cannot be"),
    "step and a half": (lambda t, s: s.update(step=1.5), "step is 1.5"),
    "no clipping": (lambda t, s: s.pop("clip_running"), "clip_running is None; a number of 32 bits was"),
    "too large a number": (lambda t, s: s.update(loss_scale=1e308), "loss_scale is 1e\\+308"),
    "a watch that is none": (lambda t, s: s.update(watch=[1]), "should be an object, and is a list"),
    "a watch in words": (lambda t, s: s.update(watch={"risen": "x"}), "risen is 'x'"),
    "an act without steps": (
        lambda t, s: s.update(journal=[{"number": 1, "kind": "redo", "step": "x", "since": 0, "reason": "r"}]),
        "journal of the checkpoint cannot be read",
    ),
}


@pytest.mark.parametrize(("change", "words"), MISFITS.values(), ids=MISFITS.keys())
def test_a_checkpoint_that_does_not_fit_is_refused_whole(parts: Setup, change: Change, words: str) -> None:
    found = loaded(parts)
    change(found.tensors, found.state)
    before = {name: value.clone() for name, value in parts.state.model.state_dict().items()}
    with torch.no_grad():
        next(parts.state.model.parameters()).add_(1)
    with pytest.raises(CheckpointError, match=words):
        parts.state.restore(found)
    with torch.no_grad():
        next(parts.state.model.parameters()).sub_(1)
    assert before.keys() == parts.state.model.state_dict().keys()


def test_near_misses_are_restored(parts: Setup) -> None:
    """A number that this version does not know, NaN as a best loss, and a run of before there were monitors."""
    found = loaded(parts)
    found.state.update(later=1, best_loss=float("nan"), watch=found.state["watch"] | {"later": 1})
    del found.tensors["monitors"]
    parts.state.restore(found)
    assert parts.state.counters.step == 1
