"""Memory of an earlier moment is filled again only where it fits, and never while somebody needs it."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
import torch
from moments import same
from tiny import Quiet, parts_of, tiny
from torch import Tensor

from safelight import start
from safelight.checkpoints.host_copy import HostCopy
from safelight.checkpoints.snapshot import Groups, Snapshot
from safelight.checkpoints.writer import Writer
from safelight.errors import CheckpointError
from safelight.training import saving as trainer


def tensors(value: float, shape: tuple[int, ...] = (3, 2), name: str = "weight", stem: str = "model") -> Groups:
    return {stem: {name: torch.full(shape, value), "step": torch.tensor(value).double()}}


def test_copies_share_nothing_with_what_they_are_of() -> None:
    source = tensors(1.0)
    source["model"]["turned"] = torch.arange(6.0).view(2, 3).t()
    copies = HostCopy().copy_from(source, reuse_buffer=False)
    expected = {name: value.clone() for name, value in source["model"].items()}
    for value in source["model"].values():
        value.fill_(7)
    assert copies["model"].keys() == expected.keys()
    assert all(same(copies["model"][name], value) for name, value in expected.items())
    assert all(copy.is_contiguous() for copy in copies["model"].values())


def test_memory_is_used_again_only_when_told() -> None:
    host_copy = HostCopy()
    first = host_copy.copy_from(tensors(1.0), reuse_buffer=False)
    again = host_copy.copy_from(tensors(2.0), reuse_buffer=True)
    assert again["model"]["weight"] is first["model"]["weight"]
    assert first["model"]["weight"].eq(2).all()
    apart = host_copy.copy_from(tensors(3.0), reuse_buffer=False)
    assert apart["model"]["weight"] is not again["model"]["weight"]
    assert again["model"]["weight"].eq(2).all()


def test_memory_that_does_not_fit_is_left_alone() -> None:
    """A row would be copied into all rows of a larger tensor without a word."""
    others = [
        tensors(2.0, shape=(1, 2)),
        tensors(2.0, name="bias"),
        tensors(2.0, stem="ema"),
        {"model": {name: value.half() for name, value in tensors(2.0)["model"].items()}},
        tensors(2.0) | {"ema": tensors(2.0)["model"]},
    ]
    for other in others:
        host_copy = HostCopy()
        first = host_copy.copy_from(tensors(1.0), reuse_buffer=False)
        copies = host_copy.copy_from(other, reuse_buffer=True)
        assert {stem: [*group] for stem, group in copies.items()} == {stem: [*group] for stem, group in other.items()}
        for stem, group in other.items():
            assert all(same(copies[stem][name], value) for name, value in group.items())
        assert first["model"]["weight"].eq(1).all()


def test_snapshot_into_used_memory_is_the_moment_itself() -> None:
    parts = parts_of()
    first = parts.state.snapshot()
    weights = {name: value.clone() for name, value in first.tensors["model"].items()}
    parts.stepper.step(parts.loader.load(0), 0)
    second = parts.state.snapshot(reuse_buffer=True)  # moments have come since, and memory of the weights fits no more
    parts.stepper.step(parts.loader.load(1), 1)
    third = parts.state.snapshot(reuse_buffer=True)
    fresh = parts.state.snapshot()
    assert third.tensors["optimizer"]["conv_in.weight/exp_avg"] is second.tensors["optimizer"]["conv_in.weight/exp_avg"]
    for stem, group in fresh.tensors.items():
        assert all(same(third.tensors[stem][name], value) for name, value in group.items())
    assert all(same(first.tensors["model"][name], value) for name, value in weights.items())


class Late(Writer):
    """Is done with a snapshot only when it is waited for, whatever it says."""

    held: ClassVar[list[tuple[Tensor, Tensor]]] = []
    kept: ClassVar[list[bool]] = []

    @property
    def busy(self) -> bool:
        return False

    def submit(self, snapshot: Snapshot, best: int | None, safe: int | None = None) -> bool:
        self.wait()
        self.held += [(value, value.clone()) for group in snapshot.tensors.values() for value in group.values()]
        return True

    def wait(self) -> None:
        self.kept += [same(*pair) for pair in self.held]
        self.held.clear()


def test_trainer_uses_no_memory_that_a_writer_still_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "Writer", Late)
    with pytest.raises(CheckpointError):  # for it writes nothing
        start.train(tiny(checkpoint__every=2, ema__snapshots=0), run=tmp_path / "run", terminal=Quiet())
    assert len(Late.kept) > 100
    assert all(Late.kept)
