"""A step once more: the gradient is that of this prediction, the update the optimizer's own, the line has a shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from micro_batches import Denoiser, network, step
from torch import nn

from safelight.probes.forward_pass import ForwardPass
from safelight.probes.replay import (
    StateBefore,
    explained,
    keep_before,
    look_at_labels,
    look_at_update,
    replay_gradient,
    search_line,
)

pytestmark = pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")  # as the inspection does

Optimizers = Callable[[Any], torch.optim.Optimizer]


def named(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, p) for name, p in model.named_parameters() if p.requires_grad]


def after_backward(
    model: Denoiser, *, seeds: tuple[int, ...] = (1,), **how: Any
) -> tuple[StateBefore, list[ForwardPass]]:
    """The gradients of a window of micro-batches, averaged."""
    micro_batches_seen = []
    for seed in seeds:
        micro_batch, loss = step(model, seed)
        (how.get("change", lambda value: value)(loss) / how.get("divide", len(seeds))).backward()
        micro_batches_seen.append(micro_batch)
    return keep_before(named(model), how.get("optimizer")), micro_batches_seen


@pytest.mark.parametrize("seeds", [(1,), (1, 2, 3)])
def test_the_gradient_is_that_of_the_prediction(seeds: tuple[int, ...]) -> None:
    model = network(dropout=0.2)  # dropout is on: the same units must be left out again
    told = replay_gradient(model, *after_backward(model, seeds=seeds), None)
    assert told["replay/cosine"] == pytest.approx(1, abs=1e-5)
    assert told["replay/ratio"] == pytest.approx(1, abs=1e-5)
    assert told["replay/output_error"] < 1e-6
    assert told["replay/error"] == pytest.approx(told["replay/told"], rel=1e-5)
    assert told["replay/micro_batches"] == len(seeds)
    assert (told["replay/missing"], told["replay/vanished"]) == (0, 0)
    assert "replay/carried" not in told


@pytest.mark.parametrize(
    ("name", "change", "cosine", "ratio"),
    [
        ("turned", lambda loss: -loss, -1, 1),
        ("scaled", lambda loss: 8 * loss, 1, 8),
        ("shifted by a constant", lambda loss: loss + 3, 1, 1),
    ],
)
def test_losses_that_are_changed(name: str, change: Any, cosine: float, ratio: float) -> None:
    model = network()
    told = replay_gradient(model, *after_backward(model, change=change), None)
    assert told["replay/cosine"] == pytest.approx(cosine, abs=1e-5)
    assert told["replay/ratio"] == pytest.approx(ratio, rel=1e-5)


def test_micro_batches_that_are_added() -> None:
    model = network()
    told = replay_gradient(model, *after_backward(model, seeds=(1, 2, 3, 4), divide=1), None)
    assert told["replay/ratio"] == pytest.approx(4, rel=1e-4)
    assert told["replay/cosine"] == pytest.approx(1, abs=1e-5)


def test_a_gradient_of_something_else() -> None:
    model = network()
    before, micro_batches_seen = after_backward(model)
    random = torch.Generator().manual_seed(0)
    strange = {name: torch.randn(value.shape, generator=random) for name, value in before.weights.items()}
    other = StateBefore(before.weights, dict(strange), None, {}, 0.0, 0.0, {})
    assert abs(replay_gradient(model, other, micro_batches_seen, None)["replay/cosine"]) < 0.3


def test_no_gradient_and_a_gradient_of_nothing() -> None:
    model = network()
    before, micro_batches_seen = after_backward(model)
    missing = StateBefore(before.weights, dict.fromkeys(before.weights), None, {}, 0.0, 0.0, {})
    told = replay_gradient(model, missing, micro_batches_seen, before.gradients)
    assert (told["replay/missing"], told["replay/norm"]) == (1, 0)
    assert told["replay/own_norm"] > 0
    zeros = {name: torch.zeros_like(value) for name, value in before.weights.items()}
    told = replay_gradient(
        model, StateBefore(before.weights, dict(zeros), None, {}, 0.0, 0.0, {}), micro_batches_seen, None
    )
    assert (told["replay/missing"], told["replay/norm"], told["replay/vanished"]) == (0, 0, 1)


@pytest.mark.parametrize("cleared", [True, False])
def test_gradients_that_are_never_cleared(cleared: bool) -> None:
    model = network()
    first, _ = after_backward(model)
    if cleared:
        model.zero_grad()
    second, micro_batches_seen = after_backward(model, seeds=(2,))
    told = replay_gradient(model, second, micro_batches_seen, first.gradients)
    assert told["replay/carried"] == pytest.approx(0 if cleared else 1, abs=1e-3)
    assert told["replay/explained"] == pytest.approx(1, abs=1e-3)


def test_nothing_is_compared_where_shapes_differ_or_nothing_was_told() -> None:
    model = network()
    before, [micro_batch] = after_backward(model)
    kept: dict[str, Any] = {name: getattr(micro_batch, name) for name in ForwardPass.__slots__}
    for changes in ({"target": None}, {"target": torch.zeros(16, 16)}, {"call": None}):
        sick = ForwardPass(**{**kept, **dict[str, Any](changes)})
        assert replay_gradient(model, before, [sick], None) == {}
        assert search_line(model, before, named(model), sick) == {}


def test_the_model_is_left_alone() -> None:
    model = network()
    before, micro_batches_seen = after_backward(model)
    kept = [(p.detach().clone(), p.grad.clone()) for p in model.parameters() if p.grad is not None]
    random = torch.get_rng_state()
    replay_gradient(model, before, micro_batches_seen, before.gradients)
    search_line(model, before, named(model), micro_batches_seen[0])
    assert all(torch.equal(p, value) and torch.equal(p.grad, grad)  # type: ignore[arg-type]
               for p, (value, grad) in zip(model.parameters(), kept, strict=True))  # fmt: skip
    assert torch.equal(random, torch.get_rng_state())


# The optimizer's twin

OPTIMIZERS: dict[str, Optimizers] = {
    "Adam": lambda p: torch.optim.Adam(p, 1e-2),
    "AdamW": lambda p: torch.optim.AdamW(p, 1e-2, weight_decay=0.1),
    "AdamW fused": lambda p: torch.optim.AdamW(p, 1e-2, fused=True),
    "AdamW foreach": lambda p: torch.optim.AdamW(p, 1e-2, foreach=True),
    "SGD with momentum": lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9),
    "SGD with Nesterov and decay": lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9, nesterov=True, weight_decay=0.1),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 1e-3),
    "Adam, AMSGrad": lambda p: torch.optim.Adam(p, 1e-2, amsgrad=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_twin_makes_the_step_that_the_optimizer_makes(name: str) -> None:
    model = network()
    optimizer = OPTIMIZERS[name](model.parameters())
    for seed in range(4):
        before, _ = after_backward(model, seeds=(seed,), optimizer=optimizer)
        state = {id(p): {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in optimizer.state[p].items()}
                 for p in model.parameters() if p in optimizer.state}  # fmt: skip
        optimizer.step()
        expected = [p.detach().clone() for p in model.parameters()]
        told = look_at_update(before, named(model))
        assert told["update/error"] < 1e-6
        assert told["update/moved"] == pytest.approx(told["update/expected"], rel=1e-5)
        assert told["update/lost"] < 0.01
        assert (told["update/coarse"], told["update/alignment"] > 0) == (0, True)
        assert all(map(torch.equal, expected, model.parameters())), "the twin must not move the model"
        assert seed == 0 or state, "from the second step on there are moments"
        optimizer.zero_grad()


@pytest.mark.parametrize("name", ["Adam", "AdamW fused", "SGD with momentum"])
def test_an_optimizer_is_as_it_would_be_without_its_twin(name: str) -> None:
    def weights(look: bool) -> list[bytes]:
        model = network()
        optimizer = OPTIMIZERS[name](model.parameters())
        for seed in range(4):
            before, _ = after_backward(model, seeds=(seed,), optimizer=optimizer if look else None)
            optimizer.step()
            if look:
                look_at_update(before, named(model))
            optimizer.zero_grad()
        moments = [v for entry in optimizer.state.values() for v in entry.values() if isinstance(v, torch.Tensor)]
        return [value.detach().numpy().tobytes() for value in (*model.parameters(), *moments)]

    assert weights(look=True) == weights(look=False)


def test_hooks_of_the_optimizer_are_not_called_by_the_twin() -> None:
    model, calls = network(), list[int]()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    optimizer.register_step_pre_hook(lambda *_: calls.append(1))
    before, _ = after_backward(model, optimizer=optimizer)
    optimizer.step()
    look_at_update(before, named(model))
    assert len(calls) == 2


@torch.no_grad()
def _meddle(model: nn.Module, factor: float) -> None:
    for parameter in model.parameters():
        parameter.mul_(factor)


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_weights_that_something_else_moved(factor: float) -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    before, _ = after_backward(model, optimizer=optimizer)
    optimizer.step()
    _meddle(model, factor)
    assert look_at_update(before, named(model))["update/error"] > 0.5


@pytest.mark.parametrize(
    ("name", "make", "aligned"),
    [("down", {}, True), ("up", {"maximize": True}, False)],
)
def test_the_direction_of_an_update(name: str, make: dict[str, bool], aligned: bool) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2, **make)
    before, _ = after_backward(model, optimizer=optimizer)
    optimizer.step()
    assert look_at_update(before, named(model))["update/alignment"] == pytest.approx(1 if aligned else -1, abs=1e-4)


def test_weights_that_stand_still_and_updates_that_are_rounded_away() -> None:
    model = network()
    before, _ = after_backward(model, optimizer=torch.optim.Adam(model.parameters(), 1e-3))
    told = look_at_update(before, named(model))
    assert (told["update/moved"], told["update/lost"]) == (0, 1)
    assert told["update/expected"] > 0
    half = network().bfloat16()
    optimizer = torch.optim.SGD(half.parameters(), 1e-6)
    for parameter in half.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = keep_before(named(half), optimizer)
    optimizer.step()
    told = look_at_update(before, named(half))
    assert told["update/coarse"] == 1
    assert told["update/lost"] > 0.9
    assert told["update/error"] == 0, "the twin rounds as the optimizer does"


def test_an_optimizer_that_wants_a_closure_is_not_compared() -> None:
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters())
    before, _ = after_backward(model, optimizer=optimizer)
    assert "update/error" not in look_at_update(before, named(model))


# The line


def test_the_line_of_a_small_update_falls_and_then_rises() -> None:
    model = network(dropout=0.0)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    before, micro_batches_seen = after_backward(model, optimizer=optimizer)
    optimizer.step()
    told = search_line(model, before, named(model), micro_batches_seen[0])
    assert 1 > told["search/0.1"] > told["search/0.3"] > told["search/1"]
    assert told["search/100"] > told["search/10"]
    assert told["search/start"] == pytest.approx(float(micro_batches_seen[0].loss), rel=1e-5)
    assert told["search/zero"] == pytest.approx(float(micro_batches_seen[0].target.square().mean()))  # type: ignore[union-attr]
    assert told["search/rate"] == pytest.approx(0.5)


@pytest.mark.parametrize(("rate", "worse"), [(1e-3, False), (100.0, True)])
def test_a_rate_that_is_too_high_makes_its_own_batch_worse(rate: float, worse: bool) -> None:
    model = network(dropout=0.0)
    optimizer = torch.optim.SGD(model.parameters(), rate)
    before, micro_batches_seen = after_backward(model, optimizer=optimizer)
    optimizer.step()
    assert (search_line(model, before, named(model), micro_batches_seen[0])["search/1"] > 1) == worse


# Labels


@pytest.mark.parametrize("permuted", [False, True])
def test_labels_help_where_they_belong_to_their_images(permuted: bool) -> None:
    """A network that says by the label what the target is."""

    class Knowing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(4, 16)

        def forward(self, x: torch.Tensor, t: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            return self.table(labels).view_as(x)

    torch.manual_seed(0)
    model = Knowing()
    labels = torch.arange(16) // 4
    shown = labels[torch.randperm(16)] if permuted else labels
    target = model.table.weight.detach()[labels].view(16, 1, 4, 4)
    micro_batch, _ = step(model, labels=shown, target=target)
    told = look_at_labels(model, keep_before(named(model), None), micro_batch)
    if permuted:
        assert abs(told["labels/gain"]) < 3 * told["labels/gain_error"]
    else:
        assert told["labels/gain"] > 5 * told["labels/gain_error"]
        assert told["labels/error"] == 0


@pytest.mark.parametrize("labels", [None, torch.zeros(16, dtype=torch.long)])
def test_labels_that_cannot_be_exchanged(labels: torch.Tensor | None) -> None:
    model = network(classes=4)
    micro_batch, _ = step(model, labels=labels)
    assert look_at_labels(model, keep_before(named(model), None), micro_batch) == {}


@pytest.mark.parametrize("belong", [True, False])
def test_images_of_one_label_are_alike_whatever_a_network_has_learnt(belong: bool) -> None:
    found = []
    for seed in range(20):
        random = torch.Generator().manual_seed(seed)
        labels = torch.randint(4, (32,), generator=random)
        centres = torch.randn(4, 1, 4, 4, generator=random)
        shown = labels if belong else labels[torch.randperm(32, generator=random)]
        images = centres[labels] + 2 * torch.randn(32, 1, 4, 4, generator=random)
        found.append(explained(images, shown))
    assert (min(found) > 1 and sum(found) > 60) if belong else abs(sum(found)) < 3 * 20**0.5
    assert explained(torch.ones(8, 1, 4, 4), torch.arange(8) % 2) == 0, "images that are all the same"
