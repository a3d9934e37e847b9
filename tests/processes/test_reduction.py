"""Gradients of several processes: sent in the order in which they come, and the same bytes in any step and start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import build_with, digest, keep, kept, launch
from tiny import parts_of, tiny
from torch import Tensor, nn

from safelight.processes import buckets, exact_sum
from safelight.processes.buckets import cut, gradient_views
from safelight.processes.group import ProcessGroup, join_group
from safelight.processes.reduction import Overlapped, make_reduction
from safelight.training.build import Setup


class Winding(nn.Module):
    """Registers its middle last, as U-Nets of diffusers do; one parameter is never used."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.down, self.up, self.middle = (nn.Linear(40, 40) for _ in range(3))
        self.unused = nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.middle(self.down(x)))


def names_in(order: list[int], model: nn.Module) -> list[str]:
    names = [name for name, _ in model.named_parameters()]
    return [names[place] for place in order]


def step(model: nn.Module, reduction: Any, seed: int, micro_batches: int = 1) -> list[Tensor]:
    for parameter in model.parameters():
        parameter.grad = None
    torch.manual_seed(seed)
    reduction.begin()
    for number in range(micro_batches):
        reduction.before_micro_batch(last=number == micro_batches - 1)
        model(torch.randn(5, 40)).square().sum().backward()
        reduction.after_micro_batch()
    reduction.finish()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def sent_early(group: ProcessGroup, order: list[int]) -> int:
    """Buckets that are under way when the first gradients have come."""
    model, found = Winding(), list[int]()
    reduction = make_reduction([*model.parameters()], group, None, order)
    assert isinstance(reduction, Overlapped)
    for parameter in model.up.parameters():
        parameter.register_post_accumulate_grad_hook(lambda _: found.append(reduction._next))
    step(model, reduction, seed=0)
    return found[-1]


def test_buckets_are_filled_in_the_order_in_which_gradients_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "EDGE", 1640)
    monkeypatch.setattr(buckets, "MIDDLE", 1640)

    def act(rank: int) -> None:
        with join_group(tiny().train) as group:
            model, order = Winding(), list[int]()
            reduction = make_reduction([*model.parameters()], group, None, order)
            assert isinstance(reduction, Overlapped)
            first = [step(model, reduction, seed=10 * rank + number) for number in range(2)]
            sent = [sent_early(group, [*order]), sent_early(group, [*range(7)][::-1])]
            model = Winding()
            reduction = make_reduction([*model.parameters()], group, None, order)  # as after a restart
            again = [step(model, reduction, seed=10 * rank + number) for number in range(2)]
            keep(
                tmp_path,
                rank,
                modules=[name.partition(".")[0] for name in names_in(order, model)],
                sent=sent,
                same=[digest(a) == digest(b) for a, b in zip(first, again, strict=True)],
            )

    launch(3, tmp_path, act)
    for told in kept(tmp_path, 3):
        assert told["modules"] == ["up", "up", "middle", "middle", "down", "down", "unused"]
        assert told["sent"] == [1, 0]  # in reverse order the middle, which is registered last, holds all others back
        assert told["same"] == [True, True]


def test_every_process_has_the_sum(tmp_path: Path) -> None:
    """Also of micro-batches, and of a parameter that none of them used."""

    def act(rank: int) -> None:
        with join_group(tiny().train) as group:
            found: dict[str, list[str]] = {}
            for name, parts in {"plain": None, "exact": 15, "exact, in slices": 15}.items():
                exact_sum.DIRECT = 0 if "slices" in name else 1 << 21  # only in the fork
                model, order = Winding(), list[int]()
                reduction = make_reduction([*model.parameters()], group, parts, order)
                gradients = step(model, reduction, seed=rank, micro_batches=5)
                expected = [torch.zeros_like(g) for g in gradients]
                for other in range(3):
                    alone = Winding()
                    torch.manual_seed(other)
                    for _ in range(5):
                        alone(torch.randn(5, 40)).square().sum().backward()
                    for sum_, parameter in zip(expected, alone.parameters(), strict=True):
                        sum_ += 0 if parameter.grad is None else parameter.grad
                for got, want in zip(gradients, expected, strict=True):
                    torch.testing.assert_close(got, want)
                found[name] = [digest(gradients)]
            keep(tmp_path, rank, **found)

    launch(3, tmp_path, act)
    told = kept(tmp_path, 3)
    assert told[0] == told[1] == told[2]
    assert told[0]["exact"] == told[0]["exact, in slices"] != told[0]["plain"]


def test_order_is_kept_in_checkpoints_of_several_processes_only(tmp_path: Path) -> None:
    def act(rank: int) -> None:
        with join_group(tiny().train) as group:
            told: dict[str, Any] = {}
            for name, settings in {"plain": {}, "exact": {"train__shards": 12}}.items():
                parts = build_with(group, **settings)
                parts.stepper.step(parts.loader.load(0), 0)
                told[name] = parts.state.snapshot().state.get("gradient_order")
            told["kept"] = resumed(group, told["plain"])
            keep(tmp_path, rank, **told)

    def resumed(group: ProcessGroup, order: list[int]) -> bool:
        parts = build_with(group)
        parts.state.gradient_order[:] = order[::-1]
        parts.stepper.step(parts.loader.load(0), 0)
        return parts.state.gradient_order == order[::-1]

    launch(2, tmp_path, act)
    one, other = kept(tmp_path, 2)
    assert one == other
    assert sorted(one["plain"]) == list(range(len(one["plain"])))
    assert one["plain"] != sorted(one["plain"])[::-1]  # a U-Net: not the reverse of its parameters
    assert one["exact"] is None
    assert one["kept"]
    assert "gradient_order" not in alone().state.snapshot().state


def alone() -> Setup:
    parts = parts_of()
    parts.stepper.step(parts.loader.load(0), 0)
    return parts


def test_edges_are_small_and_nothing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "EDGE", 10)
    monkeypatch.setattr(buckets, "MIDDLE", 100)
    for sizes, expected in {
        (4, 4, 4, 60, 60, 30, 5, 4): [[4, 4], [4, 60], [60, 30], [5, 4]],
        (3,): [[3]],
        (3, 200): [[3], [200]],
        (200, 3): [[200], [3]],
        (50, 50): [[50], [50]],
    }.items():
        parameters = [nn.Parameter(torch.zeros(size)) for size in sizes]
        assert [[p.numel() for p in group] for group in cut(parameters)] == expected


def test_gradients_lie_in_memory_as_their_parameters_do() -> None:
    channels_last = nn.Parameter(torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last))
    turned = nn.Parameter(torch.zeros(3, 4).t())
    flat = torch.arange(300.0)
    views = gradient_views(flat, [channels_last, turned])
    assert views[0].stride() == channels_last.stride()
    assert views[0].flatten().sort().values.tolist() == flat[:120].tolist()
    assert views[1].shape == (4, 3)
    assert views[1].is_contiguous()
