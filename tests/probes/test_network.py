"""A copy of the network is asked: blind, deaf, coupled, bounded, silent; and what only looks so is not readings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from micro_batches import Denoiser, network, step
from torch import Tensor, nn

from safelight.diagnosis.doctor import examine
from safelight.diagnosis.run_history import InMemoryReadings, RunHistory
from safelight.probes.network import measure_network


class Blind(Denoiser):
    def code(self, t: Tensor) -> Tensor:
        return super().code(torch.zeros_like(t))


class Unplugged(Denoiser):
    """The embedding is computed, and multiplied by nothing."""

    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        return super().forward(x, torch.zeros_like(t), labels) + 0 * self.time(self.code(t)).sum()


class Collapsed(Denoiser):
    """Timesteps in [0, 1] for sines that are made for 0 to 999."""

    def code(self, t: Tensor) -> Tensor:
        return super().code(t / 1000 / 50)


class Coupled(Denoiser):
    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        answer = super().forward(x, t, labels)
        return answer + 0.1 * answer.mean(0, keepdim=True)


class Softmaxed(Denoiser):
    """A softmax over the wrong dimension."""

    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        answer = super().forward(x, t, labels)
        return answer * torch.softmax(answer, dim=0)


class Normed(Denoiser):
    """Batch norm couples samples in training, and rightly."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.norm = nn.BatchNorm1d(24)

    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        hidden = self.norm(self.body(x.flatten(1)) + self.time(self.code(t)))
        return self.out(self.act(hidden)).view_as(x)


class Bounded(Denoiser):
    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        return super().forward(x, t, labels).tanh()


class Unheard(Denoiser):
    """Its last layer is called so that every parameter has a gradient, as loops under DDP do."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.extra = nn.Conv2d(1, 1, 1)

    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        return super().forward(x, t, labels) + 0 * self.extra(x)


class BoundedUnheard(Unheard):
    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        return super().forward(x, t, labels).tanh()


class OneSided(Denoiser):
    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        return super().forward(x, t, labels).relu()


class Deaf(Denoiser):
    """Labels are taken, and left."""

    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        return super().forward(x, t, None)


@torch.no_grad()
def zeroed(model: Denoiser, *layers: str) -> Denoiser:
    for name, parameter in model.named_parameters():
        if name.split(".")[0] in layers:
            parameter.zero_()
    return model


@torch.no_grad()
def sunk(model: Denoiser) -> Denoiser:
    model.body.bias.fill_(-50)
    return model


def silent() -> Denoiser:
    model = sunk(network())
    model.act = nn.ReLU()  # type: ignore[assignment]
    return model


ALL = ("body", "time", "out")

pytestmark = pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")  # as the inspection does


def look(
    model: nn.Module, labels: Tensor | None = None, timesteps: int | None = 1000, **changes: Any
) -> dict[str, float]:
    micro_batch, _ = step(model, labels=labels, **changes)
    return measure_network(model, micro_batch, timesteps, {})


def causes(readings: dict[str, float]) -> list[str]:
    return [
        f.cause
        for f in examine(
            RunHistory(InMemoryReadings({f"check/{name}": ([0], [value]) for name, value in readings.items()}))
        )
    ]


@pytest.mark.parametrize(
    ("name", "model", "cause"),
    [
        ("sound", network(), None),
        ("a zero output layer", zeroed(network(), "out"), None),
        ("batch norm", network(Normed), None),
        ("a zero layer of the timestep", zeroed(network(), "time"), None),
        pytest.param("blind", network(Blind), "model.blind-to-timestep"),
        pytest.param("blind, with a zero output layer", zeroed(network(Blind), "out"), "model.blind-to-timestep"),
        pytest.param("a timestep that is multiplied by nothing", network(Unplugged), "model.blind-to-timestep"),
        ("collapsed", network(Collapsed), "model.embedding-collapsed"),
        ("coupled", network(Coupled), "model.batch-coupling"),
        ("a softmax over the samples", network(Softmaxed), "model.batch-coupling"),
        ("tanh at the end", network(Bounded), "model.bounded-output"),
        ("a last layer that is not heard", network(Unheard), None),
        ("tanh behind a layer that is not heard", network(BoundedUnheard), "model.bounded-output"),
        ("ReLU at the end", network(OneSided), "model.bounded-output"),
        ("zeros everywhere", zeroed(network(), *ALL), "model.zero-init"),
        ("dead units", silent(), "model.dead-units"),
        ("units that SiLU lets sink", sunk(network()), "model.dead-units"),
        ("much dropout", network(dropout=0.8), "model.dropout"),
        ("dropout of a half", network(dropout=0.5), None),
    ],
)
def test_the_disease_is_seen_and_nothing_else(name: str, model: Denoiser, cause: str | None) -> None:
    assert causes(look(model)) == ([] if cause is None else [cause])


@pytest.mark.parametrize(("kind", "deaf"), [(Denoiser, False), (Deaf, True)])
@pytest.mark.parametrize("layers", [(), ("out",), ("labels",)])
def test_labels(kind: type[Denoiser], deaf: bool, layers: tuple[str, ...]) -> None:
    readings = look(zeroed(network(kind, classes=5), *layers), torch.arange(16) % 4)
    assert readings["network/label_rows"] == 5
    assert (readings["network/label_response"] < 1e-6) == deaf
    assert causes(readings) == (["conditioning.ignored"] if deaf else [])


def test_one_hot_labels() -> None:
    class OneHot(Denoiser):
        def __init__(self, **how: Any) -> None:
            super().__init__(**how)
            self.classes = nn.Linear(100, 24)

        def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
            assert labels is not None
            hidden = self.body(x.flatten(1)) + self.time(self.code(t))
            hidden = hidden + self.classes(nn.functional.one_hot(labels, 100).float())
            return self.out(self.drop(self.act(hidden))).view_as(x)

    assert causes(look(network(OneHot), torch.arange(16) % 9)) == []


def test_answers_of_a_sound_network() -> None:
    readings = look(network())
    assert readings["network/time_response"] > 0.01
    assert readings["network/time_collision"] < 0.9
    assert readings["network/coupling"] == 0
    assert readings["network/response"] > 0.01
    assert readings["network/loudest"] > 1000
    assert (readings["network/reached"], readings["network/matrices_reached"]) == (1, 1)
    assert readings["network/rehearsed"] < 1
    assert (readings["network/random"], readings["network/dropout"], readings["network/depends_on_mode"]) == (
        0,
        0.1,
        1,
    ) or (readings["network/dropout"] == pytest.approx(0.1))
    assert look(network(dropout=0.0))["network/depends_on_mode"] == 0


def test_what_has_no_gradient_is_counted() -> None:
    class Idle(Denoiser):
        def __init__(self, **how: Any) -> None:
            super().__init__(**how)
            self.idle = nn.Linear(3, 3)

    readings = look(network(Idle))
    assert readings["network/reached"] == pytest.approx(6 / 8)
    assert look(network())["network/reached"] == 1


def test_randomness_that_evaluation_does_not_switch_off() -> None:
    class Restless(Denoiser):
        def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
            answer = super().forward(x, t, labels)
            return answer + 0.1 * torch.randn_like(answer)

    restless, sound = look(network(Restless)), look(network())
    assert sound["network/random"] == 0
    # The call is made again with the random numbers of then: the same ones, so nothing differs.
    assert restless["network/random"] == pytest.approx(0, abs=1e-6)


def test_the_network_itself_is_left_alone() -> None:
    model = network(classes=4)
    micro_batch, loss = step(model, labels=torch.arange(16) % 3)
    loss.backward()
    model.register_forward_hook(lambda *_: calls.append(1))
    calls: list[int] = []
    model.out.eval()
    kept = [(p.detach().clone(), p.grad.clone()) for p in model.parameters() if p.grad is not None]
    random = torch.get_rng_state()
    assert measure_network(model, micro_batch, 1000, {})
    assert all(torch.equal(p, value) and torch.equal(p.grad, grad)  # type: ignore[arg-type]
               for p, (value, grad) in zip(model.parameters(), kept, strict=True))  # fmt: skip
    assert [m.training for m in model.modules()] == [m is not model.out for m in model.modules()]
    assert torch.equal(random, torch.get_rng_state())
    assert not calls, "hooks of a watch must not see the copy"
    model(*batch_of(micro_batch))
    assert calls, "and must still be there"


def batch_of(micro_batch: Any) -> tuple[Tensor, ...]:
    return micro_batch.call.inputs


def test_nothing_is_told_where_nothing_is_known() -> None:
    model = network()
    micro_batch, _ = step(model, call=None)
    assert measure_network(model, micro_batch, 1000, {}) == {}
    readings = look(model, target=torch.zeros(16, 16))
    assert "network/rehearsed" not in readings, "a target of another shape cannot be rehearsed for"
    assert "network/finite" in readings


def test_a_target_that_was_not_told_is_drawn() -> None:
    assert causes(look(network(), target=None)) == []


def test_a_network_whose_answer_is_not_finite() -> None:
    model = network()
    with torch.no_grad():
        model.out.bias.fill_(float("nan"))
    assert look(model)["network/finite"] == 0
    assert look(network())["network/finite"] == 1


@pytest.mark.parametrize("scale", [1.0, 1 / 1000])
def test_continuous_timesteps(scale: float) -> None:
    class Continuous(Denoiser):
        def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
            return super().forward(x, t / scale, labels)

    model = network(Continuous)
    micro_batch, _ = step(network())
    assert micro_batch.call is not None
    assert micro_batch.t is not None
    call = micro_batch.call.with_changes(t=micro_batch.t.float() * scale)
    readings = measure_network(model, replace(micro_batch, call=call), None, {})
    assert causes(readings) == []
    assert readings["network/time_response"] > 0.01
