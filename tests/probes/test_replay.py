"""A step once more: the gradient is that of this prediction, the line has a shape, labels help where they belong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from micro_batches import after_backward, named_parameters, network, step
from torch import nn

from safelight import checks
from safelight.probes.conditions import exchange_conditions
from safelight.probes.forward_pass import ForwardPass, Repeats
from safelight.probes.replay import explained, measure_labels, measure_responses, replay_gradient, search_line
from safelight.probes.update import copy_state

pytestmark = pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")  # as the inspection does


@pytest.mark.parametrize("seeds", [(1,), (1, 2, 3)])
def test_the_gradient_is_that_of_the_prediction(seeds: tuple[int, ...]) -> None:
    model = network(dropout=0.2)  # dropout is on: the same units must be left out again
    readings = replay_gradient(Repeats(model), *after_backward(model, seeds=seeds), None)
    assert readings["replay/cosine"] == pytest.approx(1, abs=1e-5)
    assert readings["replay/ratio"] == pytest.approx(1, abs=1e-5)
    assert readings["replay/output_error"] < 1e-6
    assert readings["replay/error"] == pytest.approx(readings["replay/told"], rel=1e-5)
    assert readings["replay/micro_batches"] == len(seeds)
    assert (readings["replay/missing"], readings["replay/vanished"]) == (0, 0)
    assert "replay/carried" not in readings


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
    readings = replay_gradient(Repeats(model), *after_backward(model, change=change), None)
    assert readings["replay/cosine"] == pytest.approx(cosine, abs=1e-5)
    assert readings["replay/ratio"] == pytest.approx(ratio, rel=1e-5)


def test_micro_batches_that_are_added() -> None:
    model = network()
    readings = replay_gradient(Repeats(model), *after_backward(model, seeds=(1, 2, 3, 4), divide=1), None)
    assert readings["replay/ratio"] == pytest.approx(4, rel=1e-4)
    assert readings["replay/cosine"] == pytest.approx(1, abs=1e-5)


def test_a_gradient_of_something_else() -> None:
    model = network()
    before, micro_batches_seen = after_backward(model)
    random = torch.Generator().manual_seed(0)
    strange = {name: torch.randn(value.shape, generator=random) for name, value in before.weights.items()}
    other = replace(before, gradients=dict(strange))
    assert abs(replay_gradient(Repeats(model), other, micro_batches_seen, None)["replay/cosine"]) < 0.3


def test_no_gradient_and_a_gradient_of_nothing() -> None:
    model = network()
    before, micro_batches_seen = after_backward(model)
    missing = replace(before, gradients=dict.fromkeys(before.weights))
    readings = replay_gradient(Repeats(model), missing, micro_batches_seen, before.gradients)
    assert (readings["replay/missing"], readings["replay/norm"]) == (1, 0)
    assert readings["replay/own_norm"] > 0
    zeros = {name: torch.zeros_like(value) for name, value in before.weights.items()}
    readings = replay_gradient(Repeats(model), replace(before, gradients=dict(zeros)), micro_batches_seen, None)
    assert (readings["replay/missing"], readings["replay/norm"], readings["replay/vanished"]) == (0, 0, 1)


@pytest.mark.parametrize("cleared", [True, False])
def test_gradients_that_are_never_cleared(cleared: bool) -> None:
    model = network()
    first, _ = after_backward(model)
    if cleared:
        model.zero_grad()
    second, micro_batches_seen = after_backward(model, seeds=(2,))
    readings = replay_gradient(Repeats(model), second, micro_batches_seen, first.gradients)
    assert readings["replay/carried"] == pytest.approx(0 if cleared else 1, abs=1e-3)
    assert readings["replay/explained"] == pytest.approx(1, abs=1e-3)


def test_nothing_is_compared_where_shapes_differ_or_nothing_was_told() -> None:
    model = network()
    before, [micro_batch] = after_backward(model)
    kept: dict[str, Any] = {name: getattr(micro_batch, name) for name in ForwardPass.__slots__}
    for changes in ({"target": None}, {"target": torch.zeros(16, 16)}, {"call": None}):
        sick = ForwardPass(**{**kept, **dict[str, Any](changes)})
        assert replay_gradient(Repeats(model), before, [sick], None) == {}
        assert search_line(Repeats(model), before, sick) == {}


def test_the_model_is_left_alone() -> None:
    model = network()
    before, micro_batches_seen = after_backward(model)
    kept = [(p.detach().clone(), p.grad.clone()) for p in model.parameters() if p.grad is not None]
    random = torch.get_rng_state()
    replay_gradient(Repeats(model), before, micro_batches_seen, before.gradients)
    search_line(Repeats(model), before, micro_batches_seen[0])
    assert all(torch.equal(p, value) and torch.equal(p.grad, grad)  # type: ignore[arg-type]
               for p, (value, grad) in zip(model.parameters(), kept, strict=True))  # fmt: skip
    assert torch.equal(random, torch.get_rng_state())


# The line


def test_probes_share_the_answers_that_several_need() -> None:
    model = network(classes=4, dropout=0.0)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    micro_batch, loss = step(model, labels=torch.arange(16) // 4)
    loss.backward()
    before = copy_state(named_parameters(model), optimizer)
    optimizer.step()
    repeats, made = Repeats(model), list[int]()
    model.register_forward_pre_hook(lambda _, inputs: made.append(len(inputs[0])))
    search_line(repeats, before, micro_batch)
    line = len(made)
    measure_labels(repeats, before, micro_batch)
    measure_responses(repeats, before, micro_batch)
    exchange_conditions(repeats, before, micro_batch)
    assert line == 1 + len(["0.1", "0.3", "1", "3", "10", "100"])
    assert len(made) == line + 2, "one answer at other times and one with other labels"
    assert repeats.passes == sum(made)


def test_a_rate_without_effect_is_followed_farther() -> None:
    for rate, farther in ((1e-9, True), (0.5, False)):
        model = network(dropout=0.0)
        optimizer = torch.optim.SGD(model.parameters(), rate)
        before, micro_batches_seen = after_backward(model, optimizer=optimizer)
        optimizer.step()
        assert ("search/1000000" in search_line(Repeats(model), before, micro_batches_seen[0])) == farther


def test_the_line_of_a_small_update_falls_and_then_rises() -> None:
    model = network(dropout=0.0)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    before, micro_batches_seen = after_backward(model, optimizer=optimizer)
    optimizer.step()
    readings = search_line(Repeats(model), before, micro_batches_seen[0])
    assert 1 > readings["search/0.1"] > readings["search/0.3"] > readings["search/1"]
    assert readings["search/100"] > readings["search/10"]
    assert readings["search/start"] == pytest.approx(float(micro_batches_seen[0].loss), rel=1e-5)
    assert readings["search/zero"] == pytest.approx(float(micro_batches_seen[0].target.square().mean()))  # type: ignore[union-attr]
    assert readings["search/rate"] == pytest.approx(0.5)


@pytest.mark.parametrize(("rate", "worse"), [(1e-3, False), (100.0, True)])
def test_a_rate_that_is_too_high_makes_its_own_batch_worse(rate: float, worse: bool) -> None:
    model = network(dropout=0.0)
    optimizer = torch.optim.SGD(model.parameters(), rate)
    before, micro_batches_seen = after_backward(model, optimizer=optimizer)
    optimizer.step()
    assert (search_line(Repeats(model), before, micro_batches_seen[0])["search/1"] > 1) == worse


def test_the_line_is_followed_down_to_an_update_that_helps_and_only_where_none_does() -> None:
    found: dict[float, set[str]] = {}
    for rate in (1e-3, 1e4):
        model = network(dropout=0.0)
        optimizer = torch.optim.SGD(model.parameters(), rate)
        before, micro_batches_seen = after_backward(model, optimizer=optimizer)
        optimizer.step()
        readings = search_line(Repeats(model), before, micro_batches_seen[0])
        found[rate] = {str(check) for check in checks.LINE_SEARCH_SHORTER.values() if check in readings}
    assert found[1e-3] == set()
    shorter = [readings[check] for check in checks.LINE_SEARCH_SHORTER.values() if check in readings]
    assert shorter[-1] < 1
    assert all(ratio >= 1 for ratio in shorter[:-1])


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
    readings = measure_labels(Repeats(model), copy_state(named_parameters(model), None), micro_batch)
    if permuted:
        assert abs(readings["labels/gain"]) < 3 * readings["labels/gain_error"]
    else:
        assert readings["labels/gain"] > 5 * readings["labels/gain_error"]
        assert readings["labels/error"] == 0


@pytest.mark.parametrize("labels", [None, torch.zeros(16, dtype=torch.long)])
def test_labels_that_cannot_be_exchanged(labels: torch.Tensor | None) -> None:
    model = network(classes=4)
    micro_batch, _ = step(model, labels=labels)
    assert measure_labels(Repeats(model), copy_state(named_parameters(model), None), micro_batch) == {}


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
