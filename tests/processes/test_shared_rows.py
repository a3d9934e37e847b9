"""Work between steps: shared by the processes, a few rows at a time, with the numbers that one process has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import SIZE, build_with, keep, kept, launch
from tiny import parts_of, tiny

from safelight.processes.group import ProcessGroup, join_group
from safelight.processes.shared_rows import share_rows
from safelight.training import fixed_set
from safelight.training.build import Setup


def weigh(parts: Setup, group: ProcessGroup) -> dict[str, Any]:
    """Losses of the fixed set, and the batches that this process sent through the network for them."""
    batches: list[int] = []
    hook = parts.state.model.register_forward_pre_hook(lambda _, inputs: batches.append(len(inputs[0])))
    torch.nn.init.normal_(parts.state.model.conv_out.weight, generator=torch.Generator().manual_seed(1))
    for value in parts.state.ema.tensors().values():
        value.mul_(0.9)
    raw, ema = parts.fixed_set.losses(parts.state, group)
    again = parts.fixed_set.raw_losses(parts.state, group)
    hook.remove()
    assert torch.allclose(again, raw)
    return {"raw": raw.tolist(), "ema": ema.tolist(), "batches": batches}


@pytest.mark.parametrize("count", [2, 3])
def test_losses_of_the_fixed_set_are_shared(count: int, tmp_path: Path) -> None:
    def act(rank: int) -> None:
        with join_group(tiny().train) as group:
            plain, exact = build_with(group), build_with(group, train__shards=12)
            keep(tmp_path, rank, plain=weigh(plain, group), exact=weigh(exact, group))

    launch(count, tmp_path, act)
    alone = weigh(parts_of(**SIZE), ProcessGroup())
    assert alone["batches"] == [128, 128, 128]
    told = kept(tmp_path, count)
    for each in told:
        for name in ("raw", "ema"):
            assert each["plain"][name] == pytest.approx(alone[name], rel=1e-5)
            assert each["exact"][name] == alone[name]
    assert alone["raw"] != alone["ema"]
    rows = [sum(each["plain"]["batches"]) for each in told]
    assert sum(rows) == 3 * 128
    assert max(rows) <= -(-256 // count) + -(-128 // count)
    assert [each["exact"]["batches"] for each in told] == [[128, 128], [128], []][:count]


def test_large_images_go_through_the_network_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = weigh(parts_of(**SIZE), ProcessGroup())
    monkeypatch.setattr(fixed_set, "MAX_PIXELS", 50 * 8**2)
    found = weigh(parts_of(**SIZE), ProcessGroup())
    assert found["batches"] == [50, 50, 28] * 3
    for name in ("raw", "ema"):
        assert found[name] == pytest.approx(whole[name], rel=1e-5)


def test_rows_that_belong_together_stay_together(tmp_path: Path) -> None:
    def act(rank: int) -> None:
        with join_group(tiny().train) as group:
            done: list[tuple[int, int]] = []

            def rows(start: int, stop: int) -> torch.Tensor:
                done.append((start, stop))
                return torch.arange(start, stop).float()

            found = share_rows(group, 10, rows, unit=5)
            keep(tmp_path, rank, found=found.tolist(), done=done)

    launch(3, tmp_path, act)
    told = kept(tmp_path, 3)
    assert all(each["found"] == list(range(10)) for each in told)
    assert [each["done"] for each in told] == [[[0, 5]], [[5, 10]], []]
