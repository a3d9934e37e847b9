"""Every kind of scheduler, table, process or pair of functions is taken for what it is, or refused in words."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from safelight.diffusion.process import Process, linear_flow
from safelight.diffusion.schedulers import declaration_of, prediction_of
from safelight.errors import UsageError

FLOW_SIGMAS = {"use_flow_sigmas": True, "prediction_type": "flow_prediction"}


@pytest.mark.parametrize(
    ("name", "settings", "family", "prediction"),
    [
        ("FlowMatchEulerDiscreteScheduler", {}, "flow", "flow"),
        ("FlowMatchEulerDiscreteScheduler", {"shift": 3.0}, "flow", "flow"),
        ("FlowMatchEulerDiscreteScheduler", {"invert_sigmas": True}, "flow", "reverse_flow"),
        ("FlowMatchHeunDiscreteScheduler", {}, "flow", "flow"),
        (
            "DPMSolverMultistepScheduler",
            FLOW_SIGMAS,
            "flow",
            "flow",
        ),
        ("UniPCMultistepScheduler", FLOW_SIGMAS, "flow", "flow"),
        ("EDMEulerScheduler", {}, "ve", "edm"),
        ("EDMDPMSolverMultistepScheduler", {"sigma_data": 1.0}, "ve", "edm"),
        ("EDMEulerScheduler", {"prediction_type": "v_prediction"}, "ve", None),
        ("ScoreSdeVeScheduler", {}, "ve", "score"),
        ("DDPMScheduler", {}, None, "epsilon"),
        ("DDIMScheduler", {"prediction_type": "v_prediction"}, None, "v_prediction"),
        ("DPMSolverMultistepScheduler", {}, None, "epsilon"),
        ("UniPCMultistepScheduler", {}, None, "epsilon"),
        ("EulerDiscreteScheduler", {}, None, "epsilon"),
        ("HeunDiscreteScheduler", {}, None, "epsilon"),
        ("PNDMScheduler", {}, None, "epsilon"),
    ],
)
def test_schedulers(name: str, settings: dict[str, Any], family: str | None, prediction: str | None) -> None:
    import diffusers

    found = declaration_of(getattr(diffusers, name)(**settings))
    assert (None if found.family is None else found.family.name) == family
    assert found.prediction == prediction
    assert (found.alphas is None) == (family is not None)
    assert found.any_scale == name.startswith(("Euler", "Heun"))
    if found.family is not None:
        assert found.family.sigma_data == (settings.get("sigma_data", 0.5) if name.startswith("EDM") else None)


def test_x_t_of_a_flow_scheduler_is_that_of_its_process() -> None:
    from diffusers import FlowMatchEulerDiscreteScheduler

    scheduler: Any = FlowMatchEulerDiscreteScheduler(shift=3.0)
    family = declaration_of(scheduler).family
    assert family is not None
    t = scheduler.timesteps[::37]
    x0, noise = torch.randn(len(t), 5), torch.randn(len(t), 5)
    a, s = family.usual().at(t / 1000)
    made = a[:, None] * x0 + s[:, None] * noise
    torch.testing.assert_close(scheduler.scale_noise(x0, t, noise).double(), made, rtol=1e-4, atol=1e-4)


def test_tables_processes_and_functions() -> None:
    alphas = torch.linspace(0.99, 0.01, 20)
    for table in (alphas, alphas.numpy(), alphas.tolist()):
        found = declaration_of(table).alphas
        assert found is not None
        assert found.dtype == torch.float64
    process = linear_flow()
    assert declaration_of(process).process is process
    made = declaration_of((lambda t: 1 - t, lambda t: t)).process
    assert isinstance(made, Process)
    a, s = made.at(torch.tensor([0.25]))
    assert (a.item(), s.item()) == (0.75, 0.25)
    constant = declaration_of((lambda t: 1.0, lambda t: t)).process
    assert constant is not None
    assert constant.at(torch.tensor([0.2, 0.4]))[0].tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (object(), "no alphas_cumprod"),
        (torch.tensor([[0.5]]), "alphas_cumprod"),
        (torch.tensor([0.5, 1.5]), "alphas_cumprod"),
        (["a", "b"], "diffusers scheduler"),
        ((lambda t: t.nothing, lambda t: t), r"a\(t\) cannot be computed"),
        ((lambda t: 1 - t, lambda t: -t), r"s\(t\) of t"),
        ((lambda t: t[:2], lambda t: t), r"a\(t\) of t"),
    ],
)
def test_everything_else_is_refused_in_words(given: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        declaration_of(given)


@pytest.mark.parametrize(
    ("word", "name"),
    [("epsilon", "epsilon"), ("x0", "sample"), ("v", "v_prediction"), ("flow_prediction", "flow"), ("edm", "edm"),
     ("rectified_flow", "flow"), ("x0 − noise", "reverse_flow"), ("reverse_flow", "reverse_flow"), (None, None)],
)  # fmt: skip
def test_predictions_have_the_words_of_others(word: str | None, name: str | None) -> None:
    assert prediction_of(word) == name


def test_a_prediction_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UsageError, match="reverse_flow"):
        prediction_of("velocity")  # of which process?
