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
from safelight.probes.settings import measure_optimizer, measure_schedule, unmatched_parameters


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
