"""What is known before anything is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from micro_batches import ALPHAS, Denoiser, network
from torch import Tensor, nn

from safelight.config.tree import Diffusion, Prediction
from safelight.diagnosis.doctor import examine
from safelight.diagnosis.run_history import InMemoryReadings, RunHistory
from safelight.diffusion.schedule import make_schedule
from safelight.probes.settings import (
    FrozenWeights,
    is_adapted,
    is_uncumulated,
    measure_adapters,
    measure_optimizer,
    measure_resume,
    measure_schedule,
    unmatched_parameters,
)


def causes(readings: dict[str, float]) -> list[str]:
    return [
        f.cause
        for f in examine(
            RunHistory(InMemoryReadings({f"check/{name}": ([0], [value]) for name, value in readings.items()}))
        )
    ]


def by_betas(betas: Tensor) -> Tensor:
    return torch.cumprod(1 - betas.double(), 0)


LINEAR = torch.linspace(1e-4, 0.02, 1000)
ZERO = torch.cat([by_betas(LINEAR)[:-1], torch.zeros(1, dtype=torch.float64)])


@pytest.mark.parametrize(
    ("name", "alphas", "prediction", "cause"),
    [
        ("linear", by_betas(LINEAR), "epsilon", None),
        *((name, make_schedule(Diffusion(schedule=name)).alphas_cumprod, "epsilon", None)  # type: ignore[arg-type]
          for name in ("cosine", "linear", "scaled-linear", "sigmoid")),
        ("Stable Diffusion", by_betas(torch.linspace(0.00085**0.5, 0.012**0.5, 1000).square()), "epsilon", None),
        ("constant betas", by_betas(torch.full((1000,), 0.01)), "epsilon", None),
        ("turned round", by_betas(LINEAR).flip(0), "epsilon", "schedule.not-decreasing"),
        ("betas turned round", by_betas(LINEAR.flip(0)), "epsilon", "schedule.not-decreasing"),
        ("too few steps", by_betas(LINEAR[:100]), "epsilon", "schedule.signal-left"),
        ("no signal at the end, epsilon", ZERO, "epsilon", "schedule.zero-snr-epsilon"),
        ("no signal at the end, v", ZERO, "v_prediction", None),
        ("no signal at the end, not said", ZERO, None, None),
    ],
)  # fmt: skip
def test_schedules(name: str, alphas: Tensor, prediction: Prediction | None, cause: str | None) -> None:
    readings = measure_schedule(alphas, prediction)
    assert causes(readings) == ([] if cause is None else [cause])
    assert readings["schedule/timesteps"] == len(alphas)


def cosine_betas(count: int) -> np.ndarray:
    kept = np.cos((np.arange(count + 1) / count + 0.008) / 1.008 * np.pi / 2) ** 2
    return np.minimum(1 - kept[1:] / kept[:-1], 0.999)


BETAS = {
    "linear": np.linspace(1e-4, 0.02, 1000),
    "scaled": np.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2,
    "cosine": cosine_betas(1000),
    "few, cosine": cosine_betas(100),
    "few": np.linspace(1e-3, 0.2, 100),
}
SHORT = {"fifty": np.linspace(1e-4, 0.02, 50), "hundred": np.linspace(1e-4, 0.02, 100)}


@pytest.mark.parametrize("name", BETAS)
def test_alphas_are_told_from_their_product(name: str) -> None:
    assert is_uncumulated(1 - BETAS[name])
    assert not is_uncumulated(np.cumprod(1 - BETAS[name]))


@pytest.mark.parametrize("name", SHORT)
def test_a_schedule_that_ends_early_is_cumulated(name: str) -> None:
    assert not is_uncumulated(np.cumprod(1 - SHORT[name]))


def test_numbers_of_a_schedule() -> None:
    readings = measure_schedule(torch.tensor([1.2, 0.5, 0.6]), "epsilon")
    assert readings["schedule/outside"] == pytest.approx(1 / 3)
    assert readings["schedule/rising"] == 0.5
    assert (readings["schedule/first"], readings["schedule/last"]) == (pytest.approx(1.2), pytest.approx(0.6))


def frozen() -> Denoiser:
    model = network()
    model.time.requires_grad_(False)
    return model


def look(model: nn.Module, parameters: Any, **how: Any) -> dict[str, float]:
    return measure_optimizer(model, torch.optim.AdamW(parameters, **how))


@pytest.mark.parametrize(
    ("name", "model", "choose", "cause"),
    [
        ("all", network(), lambda m: m.parameters(), None),
        ("in groups", network(), lambda m: [{"params": m.body.parameters()}, {"params": [*m.time.parameters(),
         *m.out.parameters()], "lr": 0.1}], None),
        ("of another model", network(), lambda m: network().parameters(), "optimizer.other-parameters"),
        ("without a layer", network(), lambda m: [*m.body.parameters(), *m.out.parameters()],
         "optimizer.missing-parameters"),
        ("a layer was replaced", network(), lambda m: [*m.body.parameters(), *m.out.parameters(),
         *nn.Linear(16, 24).parameters()], "optimizer.other-parameters"),
        ("of two models", network(), lambda m: [*m.parameters(), *nn.Linear(2, 2).parameters()], None),
        ("frozen on purpose", frozen(), lambda m: [p for p in m.parameters() if p.requires_grad], None),
        ("frozen, and in the optimizer", frozen(), lambda m: m.parameters(), "model.frozen"),
    ],
)  # fmt: skip
def test_what_the_optimizer_holds(name: str, model: Denoiser, choose: Any, cause: str | None) -> None:
    assert causes(look(model, choose(model))) == ([] if cause is None else [cause])


def test_shares() -> None:
    model = network()
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    readings = look(model, [*model.body.parameters(), *model.out.parameters()], lr=0.1, weight_decay=0.2, maximize=True)
    missing = sizes["time.weight"] + sizes["time.bias"]
    assert readings["optimizer/missing"] == pytest.approx(missing / sum(sizes.values()))
    assert (readings["optimizer/rate"], readings["optimizer/weight_decay"], readings["optimizer/maximize"]) == (
        0.1,
        0.2,
        1,
    )
    assert readings["optimizer/adaptive"] == 1
    assert measure_optimizer(model, torch.optim.SGD(model.parameters(), 0.1))["optimizer/adaptive"] == 0
    assert look(network().bfloat16(), None or network().bfloat16().parameters())["optimizer/half_weights"] == 1
    assert readings["optimizer/half_weights"] == 0


def test_names() -> None:
    model = frozen()
    optimizer = torch.optim.SGD([*model.body.parameters(), *model.time.parameters()], 0.1)
    assert unmatched_parameters(model, optimizer) == {
        "missing": ["out.weight", "out.bias"],
        "frozen": ["time.weight", "time.bias"],
    }
    assert np.isfinite(measure_schedule(ALPHAS, None)["schedule/largest_jump"])


class Adapted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(8, 8).requires_grad_(False)
        self.position = nn.Parameter(torch.zeros(1, 8), requires_grad=False)
        self.lora_A, self.lora_B = nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False)
        nn.init.zeros_(self.lora_B.weight)


def test_adapters_are_known_by_their_names() -> None:
    model = Adapted()
    assert measure_adapters(model) == {"adapter/base_trained": 0, "adapter/dead": 0}
    assert is_adapted(model)
    nn.init.zeros_(model.lora_A.weight)
    assert measure_adapters(model)["adapter/dead"] == 1
    model.base.requires_grad_(True)
    assert measure_adapters(model)["adapter/base_trained"] > 0.8
    assert measure_adapters(nn.Linear(8, 8)) == {}


def test_constants_are_no_frozen_parts() -> None:
    model = Adapted()
    del model.lora_A, model.lora_B
    model.head = nn.Linear(8, 8)
    optimizer = torch.optim.Adam(model.parameters())
    assert unmatched_parameters(model, optimizer)["frozen"] == ["base.weight", "base.bias"]
    assert unmatched_parameters(Adapted(), torch.optim.Adam(Adapted().parameters()))["frozen"] == []


def test_frozen_weights_that_change_are_seen() -> None:
    model = Adapted()
    kept = FrozenWeights(model)
    with torch.no_grad():
        model.lora_A.weight.add_(1)
        assert not kept.were_changed()
        model.base.weight.add_(1)
    assert kept.were_changed()


def test_a_resume_brings_its_state_or_not() -> None:
    model = nn.Linear(4, 4)
    weights, optimizer = list(model.parameters()), torch.optim.Adam(model.parameters())
    readings = measure_resume(500, optimizer, [each.detach().clone() for each in weights], weights)
    assert readings == {"resume/step": 500, "resume/optimizer": 0, "resume/copied": 1}
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    readings = measure_resume(500, optimizer, [each.detach() * 0.9 for each in weights], weights)
    assert readings == {"resume/step": 500, "resume/optimizer": 1, "resume/copied": 0}
    assert measure_resume(500, torch.optim.SGD(weights, lr=0.1), None, weights) == {"resume/step": 500}


class LowRank(nn.Module):
    """Named neither as an adapter nor as anything else; `Lora` is, by its class."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base, self.down, self.up = base, nn.Linear(8, 1, bias=False), nn.Linear(1, 8, bias=False)


class Lora(LowRank): ...


@pytest.mark.parametrize("freezes", [False, True])
@pytest.mark.parametrize(("kind", "share"), [(Lora, 1.0), (LowRank, None)])
def test_adapters_that_came_after_the_optimizer(kind: type[LowRank], share: float | None, freezes: bool) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    early = torch.optim.AdamW(model.parameters())
    model.requires_grad_(not freezes)
    first = model[0]
    assert isinstance(first, nn.Linear)
    model[0] = kind(first)
    assert measure_optimizer(model, early).get("adapter/missing") == share
    late = torch.optim.AdamW(model.parameters())
    assert measure_optimizer(model, late).get("adapter/missing") == (None if share is None else 0)
