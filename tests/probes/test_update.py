"""An update once more: the twin of an optimizer makes its step, and what else moves the weights shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from micro_batches import after_backward, named_parameters, network
from torch import Tensor, nn

from safelight.probes.update import compare_with_weights, copy_state, measure_ema, measure_update

Optimizers = Callable[[Any], torch.optim.Optimizer]
pytestmark = pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")  # as the inspection does

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
        readings = measure_update(before, named_parameters(model))
        assert readings["update/error"] < 1e-6
        assert readings["update/moved"] == pytest.approx(readings["update/expected"], rel=1e-5)
        assert readings["update/lost"] < 0.01
        assert (readings["update/coarse"], readings["update/alignment"] > 0) == (0, True)
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
                measure_update(before, named_parameters(model))
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
    measure_update(before, named_parameters(model))
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
    assert measure_update(before, named_parameters(model))["update/error"] > 0.5


@pytest.mark.parametrize(
    ("name", "make", "aligned"),
    [("down", {}, True), ("up", {"maximize": True}, False)],
)
def test_the_direction_of_an_update(name: str, make: dict[str, bool], aligned: bool) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 1e-2, **make)
    before, _ = after_backward(model, optimizer=optimizer)
    optimizer.step()
    assert measure_update(before, named_parameters(model))["update/alignment"] == pytest.approx(
        1 if aligned else -1, abs=1e-4
    )


def test_weights_that_stand_still_and_updates_that_are_rounded_away() -> None:
    model = network()
    before, _ = after_backward(model, optimizer=torch.optim.Adam(model.parameters(), 1e-3))
    readings = measure_update(before, named_parameters(model))
    assert (readings["update/moved"], readings["update/lost"]) == (0, 1)
    assert readings["update/expected"] > 0
    half = network().bfloat16()
    optimizer = torch.optim.SGD(half.parameters(), 1e-6)
    for parameter in half.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = copy_state(named_parameters(half), optimizer)
    optimizer.step()
    readings = measure_update(before, named_parameters(half))
    assert readings["update/coarse"] == 1
    assert readings["update/lost"] > 0.9
    assert readings["update/error"] == 0, "the twin rounds as the optimizer does"


def test_an_optimizer_that_wants_a_closure_is_not_compared() -> None:
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters())
    before, _ = after_backward(model, optimizer=optimizer)
    assert "update/error" not in measure_update(before, named_parameters(model))


SIZES = ((8, 4), (8,), (4, 8))


def seeded(seed: int, scale: float = 1.0) -> list[Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=random) * scale for size in SIZES]


OLD, LIVE = seeded(1), seeded(2)


def mixed(decay: float, old: list[Tensor] = OLD, live: list[Tensor] = LIVE) -> list[Tensor]:
    return [decay * a + (1 - decay) * b for a, b in zip(old, live, strict=True)]


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, -0.5, 1.5])
def test_the_decay_is_recovered(decay: float) -> None:
    readings = measure_ema(OLD, mixed(decay), LIVE)
    assert readings["average/decay"] == pytest.approx(decay, abs=2e-7 / max(1 - decay, 1e-4) * 1e-3 + 2e-6)
    assert readings["average/left"] < 0.01
    assert readings["average/moved"] == pytest.approx(abs(1 - decay), rel=1e-3, abs=1e-6)


def test_an_average_that_stands_still() -> None:
    readings = measure_ema(OLD, [each.clone() for each in OLD], LIVE)
    assert (readings["average/moved"], readings["average/decay"], readings["average/left"]) == (0, 1, 0)


def test_nothing_to_follow() -> None:
    assert measure_ema(OLD, OLD, [each.clone() for each in OLD]) == {}


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("of another model", mixed(0.9, OLD, seeded(3))),
        ("of parameters in another order", [*mixed(0.9)[:2], mixed(0.9, [OLD[2]], [LIVE[2].flip(0)])[0]]),
        ("of one tensor only", [mixed(0.9)[0], *OLD[1:]]),
        ("another decay for each tensor", [mixed(0.9)[0], *mixed(0.3)[1:]]),
        ("with noise", [each + 0.05 * torch.randn_like(each) for each in mixed(0.99)]),
    ],
)
def test_what_is_not_an_average(name: str, after: list[Tensor]) -> None:
    assert measure_ema(OLD, after, LIVE)["average/left"] > 0.1


def test_half_precision_is_seen_and_not_taken_for_another_disease() -> None:
    old = [each.bfloat16() for each in OLD]
    readings = measure_ema(old, [each.bfloat16() for each in mixed(0.9)], LIVE)
    assert readings["average/coarse"] == 1
    assert readings["average/left"] < 0.1
    assert readings["average/decay"] == pytest.approx(0.9, abs=0.01)
    still = measure_ema(old, [each.bfloat16() for each in mixed(0.99999, [o.float() for o in old])], LIVE)
    assert still["average/coarse"] == 1
    assert still["average/moved"] < 1e-5
    assert still["average/rounding"] > 1
    assert measure_ema(OLD, mixed(0.9), LIVE)["average/coarse"] == 0


def test_the_small_steps_of_a_long_average_are_no_rounding_error() -> None:
    close = [a + 1e-3 * b for a, b in zip(OLD, LIVE, strict=True)]
    readings = measure_ema(OLD, mixed(0.9999, OLD, close), close)
    assert readings["average/left"] < 0.1


def test_nothing_is_changed() -> None:
    before = [each.clone() for group in (OLD, LIVE) for each in group]
    measure_ema(OLD, mixed(0.9), LIVE)
    assert all(map(torch.equal, before, [*OLD, *LIVE]))


def test_tensors_that_are_copied_are_left_out() -> None:
    readings = measure_ema(OLD, [mixed(0.9)[0], LIVE[1].clone(), mixed(0.9)[2]], LIVE)
    assert readings["average/decay"] == pytest.approx(0.9, abs=1e-5)
    assert readings["average/left"] < 0.01


@pytest.mark.parametrize(
    ("name", "ema", "cosine", "shared"),
    [
        ("a copy", [each.clone() for each in LIVE], 1, 0),
        ("the weights themselves", LIVE, 1, 1),
        ("an average that lags", mixed(0.3), 0.9, 0),
        ("another network", OLD, 0, 0),
    ],
)
def test_an_average_is_one_of_these_weights(name: str, ema: list[Tensor], cosine: float, shared: float) -> None:
    readings = compare_with_weights(ema, LIVE)
    assert readings["average/cosine"] == pytest.approx(cosine, abs=0.2)
    assert readings["average/shared"] == shared


def test_an_average_of_zeros_has_no_direction() -> None:
    assert "average/cosine" not in compare_with_weights([torch.zeros_like(each) for each in LIVE], LIVE)
