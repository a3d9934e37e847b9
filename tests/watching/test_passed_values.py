"""Whatever a loop passes: one thing that cannot be used costs itself, and one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import safelight
from safelight.record.reading import read_events, read_signal
from safelight.watching.loop import Watch
from safelight.watching.loop_values import usable_loss, usable_tensors

ODD: dict[str, Any] = {
    "word": "x", "object": object(), "dict": {"loss": 1.0}, "meta": torch.tensor(1.0, device="meta"),
    "sparse": torch.ones(2).to_sparse(), "words": np.array(["a"]), "objects": np.array([None]),
}  # fmt: skip


class Wordless:
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("loss", "count"),
    [(torch.tensor([1.0, 2.0], requires_grad=True), 2), (5, 1), (2.5, 1), (np.float32(2), 1), ([1.0, 2.0], 2), 
     pytest.param(10**400, 1, id="large"),
     (float("nan"), 1), (True, 1), (np.ones(4), 4)],
)  # fmt: skip
def test_a_loss_is_any_number_or_several(loss: Any, count: int) -> None:
    found = usable_loss(loss, pytest.fail)
    assert found is not None
    assert (found.numel(), found.requires_grad) == (count, False)


NO_LOSS = {**ODD, "complex": torch.tensor(1j), "no numbers": torch.tensor([]), "empty": []}


@pytest.mark.parametrize("loss", NO_LOSS.values(), ids=NO_LOSS)
def test_what_is_no_loss_is_left_out(loss: Any) -> None:
    said: list[str] = []
    assert usable_loss(loss, said.append) is None
    assert "is left out" in said[0]


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_what_is_no_tensor_is_left_out(value: Any) -> None:
    said: list[str] = []
    x0 = np.zeros((2, 1, 4, 4))
    found = usable_tensors({"t": value, "x0": x0, "noise": None}, said.append)
    assert (found["t"], found["noise"]) == (None, None)
    assert found["x0"] is not None
    assert [words[:4] for words in said] == ["t is"]


def test_a_watch_lives_through_all_of_it(tmp_path: Path) -> None:
    said: list[str] = []
    torch.manual_seed(0)
    model = nn.Conv2d(1, 1, 3, padding=1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watch = safelight.watch(model, optimizer, run=tmp_path / "run", say=said.append)
    x = torch.randn(4, 1, 8, 8)
    for name, value in [("", None), *ODD.items()]:
        for given in ({}, {"loss": value}, *({key: value} for key in ("t", "x0", "noise", "x_t", "pred", "labels"))):
            loss = ((model(x) - x) ** 2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            watch.step(**{"loss": loss} | (given if name else {}))
    for name in ("a\ud800", "\U0001d49c" * 60, "../../x", "\0", Wordless(), b"x", None):
        watch.image(name, torch.zeros(1, 8, 8))  # type: ignore[arg-type]
    for image in (torch.zeros(0, 3, 8, 8), torch.tensor(1.0), [], 5, Wordless(), torch.zeros(1, 1, 8, 8).to_sparse()):
        watch.image("x", image)
    for step in (-1, 2**63, "x", float("nan"), Wordless()):
        watch.image("y", torch.zeros(1, 8, 8), step=step)  # type: ignore[arg-type]
    watch.close()
    assert not any("stopped" in words or "lost" in words for words in said)
    assert len(read_signal(tmp_path / "run" / "record.sqlite", "loss/mean")) >= 8 * 7
    assert not list(tmp_path.glob("*x_*"))
    assert len(read_events(tmp_path / "run" / "record.sqlite", "no_picture")) == 7, "a name and six images"


def test_a_watch_that_stops_keeps_what_was_measured(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watch = safelight.watch(model, optimizer, run=tmp_path / "run", say=lambda _: None)
    assert isinstance(watch, Watch)
    for step in range(5):
        if step == 4:
            watch._observer.add_forward_pass = lambda *_: 1 / 0  # type: ignore[method-assign, assignment, return-value]
        loss = model(torch.ones(1, 2)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.step(loss)
    watch.close()
    assert len(read_signal(tmp_path / "run" / "record.sqlite", "loss/mean")) == 4
