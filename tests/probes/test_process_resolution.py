"""Loops that declare nothing, or not how they write their times: recognised right, or not at all; never wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from safelight.checks import FORWARD_LIMIT
from safelight.diffusion.process import edm, linear_flow
from safelight.diffusion.schedulers import declaration_of
from safelight.probes.forward_pass import Call, ForwardPass, ProcessSpec
from safelight.probes.mixtures import NoisingFit

BATCH, STEPS = 64, 5
LINEAR = torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64).neg().add(1).cumprod(0)
COSINE = torch.cos((torch.arange(1, 1001, dtype=torch.float64) / 1000 + 0.008) / 1.008 * math.pi / 2) ** 2

Pair = tuple[Tensor, Tensor]


class Made(NamedTuple):
    """One loop: its noise levels, what becomes of them, and what is right of it."""

    draw: Callable[[torch.Generator], Tensor]
    """Of a batch: u, σ or timesteps."""
    mix: Callable[[Tensor], Pair]
    target: str
    told: Callable[[Tensor], Tensor]
    process: str | None
    prediction: str | None
    shown: Callable[[Tensor], Tensor] = torch.ones_like
    """c_in."""
    passed: Callable[[Tensor], Tensor] | None = None
    """t as it is passed; None: as it is told."""
    sigma_data: float = 0.5
    twist: str = ""
    knows: str = ""
    """Part of the words."""


def uniform(g: torch.Generator) -> Tensor:
    return torch.rand(BATCH, generator=g, dtype=torch.float64)


def logit(g: torch.Generator) -> Tensor:
    return torch.sigmoid(torch.randn(BATCH, generator=g, dtype=torch.float64))


def sigmas(g: torch.Generator) -> Tensor:
    return (1.2 * torch.randn(BATCH, generator=g, dtype=torch.float64) - 1.2).exp()


def places(g: torch.Generator) -> Tensor:
    return torch.randint(0, 1000, (BATCH,), generator=g).double()


def flow(u: Tensor) -> Pair:
    return 1 - u, u


def ve(u: Tensor) -> Pair:
    return torch.ones_like(u), u


def circle(u: Tensor) -> Pair:
    return torch.cos(u * math.pi / 2), torch.sin(u * math.pi / 2)


def table(alphas: Tensor) -> Callable[[Tensor], Pair]:
    return lambda u: (alphas[u.long()].sqrt(), (1 - alphas[u.long()]).sqrt())


def shift(u: Tensor) -> Tensor:
    return 3 * u / (1 + 2 * u)


def c_in(sigma_data: float) -> Callable[[Tensor], Tensor]:
    return lambda u: (u.square() + sigma_data**2).rsqrt()


def same(u: Tensor) -> Tensor:
    return u


def row(name: str, x0: Tensor, noise: Tensor, a: Tensor, s: Tensor, sigma_data: float) -> Tensor:
    length = (s.square() + (a * sigma_data).square()).sqrt()
    found = {
        "epsilon": noise, "sample": x0, "v": a * noise - s * x0, "flow": noise - x0, "score": -noise / s,
        "edm": s / (sigma_data * length) * x0 - a * sigma_data / length * noise, "third": 0.3 * x0 + 0.4 * noise,
    }  # fmt: skip
    return -found[name[1:]] if name.startswith("-") else found[name]


def thousand(u: Tensor) -> Tensor:
    return 1000 * u


def quarter(u: Tensor) -> Tensor:
    return u.log() / 4


LOOPS: dict[str, Made] = {
    "rectified flow": Made(uniform, flow, "flow", same, "flow", "flow", knows="t = s"),
    "SD3": Made(logit, flow, "flow", thousand, "flow", "flow", knows="logit-normal(0, 1)"),
    "Flux, t told as a fraction": Made(logit, flow, "flow", same, "flow", "flow", passed=thousand),
    "shift 3": Made(
        lambda g: shift(uniform(g)),
        flow,
        "flow",
        thousand,
        "flow",
        "flow",
    ),
    "told before the shift": Made(uniform, lambda u: flow(shift(u)), "flow", same, "flow", "flow", knows="shift of 3"),
    "SiT, towards data": Made(uniform, flow, "-flow", lambda u: 1 - u, "flow", "reverse_flow", knows="(1 − s)"),
    "towards data, 1,000": Made(uniform, flow, "-flow", lambda u: 1000 * (1 - u), "flow", "reverse_flow"),
    "whole timesteps of a flow": Made(lambda g: places(g) / 1000, flow, "flow", thousand, "flow", "flow"),
    "flow, x0": Made(uniform, flow, "sample", thousand, "flow", "sample"),
    "flow, noise": Made(uniform, flow, "epsilon", same, "flow", "epsilon"),
    "flow, v": Made(uniform, flow, "v", same, "flow", "v_prediction"),
    "flow, log-SNR": Made(uniform, flow, "flow", lambda u: 2 * torch.logit(1 - u), "flow", "flow", knows="log-SNR"),
    "flow, 999": Made(uniform, flow, "flow", lambda u: 999 * u, "flow", "flow"),
    "expert of high noise": Made(lambda g: 0.875 + uniform(g) / 8, flow, "flow", thousand, "flow", "flow"),
    "DDPM": Made(places, table(LINEAR), "epsilon", same, "vp", "epsilon", knows="whole timesteps"),
    "DDPM, v": Made(places, table(COSINE), "v", same, "vp", "v_prediction"),
    "DDPM, x0, fractions": Made(places, table(LINEAR), "sample", lambda u: u / 1000, "vp", "sample"),
    "quarter of a circle": Made(uniform, circle, "v", same, "vp", "v_prediction"),
    "circle, 1,000": Made(uniform, circle, "epsilon", thousand, "vp", "epsilon"),
    "NCSN": Made(sigmas, ve, "score", same, "ve", "score", knows="t = sigma"),
    "VE, noise, log σ": Made(sigmas, ve, "epsilon", torch.log, "ve", "epsilon", knows="log(sigma)"),
    "VE, x0, σ": Made(sigmas, ve, "sample", same, "ve", "sample"),
    "EDM": Made(sigmas, ve, "edm", quarter, "edm", "edm", c_in(0.5), passed=same, knows="log(sigma) / 4"),
    "EDM, latents": Made(sigmas, ve, "edm", same, "edm", "edm", c_in(0.7), sigma_data=0.7, knows="sigma_data 0.7"),
    "EDM's input, noise": Made(sigmas, ve, "epsilon", quarter, "edm", "epsilon", c_in(0.5), passed=same),
    "EDM's input, x0": Made(sigmas, ve, "sample", quarter, "edm", "sample", c_in(0.5)),
    # What has no name is not named.
    "no usual target": Made(uniform, flow, "third", thousand, "flow", None),
    "a process of its own": Made(uniform, lambda u: (1 - u**2, u), "epsilon", same, None, None),
    "one noise level": Made(lambda g: torch.full((BATCH,), 0.5).double(), flow, "flow", same, None, None),
    "shuffled times": Made(uniform, flow, "flow", same, "flow", None, twist="shuffled"),
    "other noise in x_t": Made(uniform, flow, "flow", same, None, None, twist="other noise"),
    "two numbers a sample": Made(uniform, flow, "flow", same, None, None, twist="tiny"),
    "no time": Made(uniform, flow, "flow", same, "flow", None, twist="no time"),
}


def passes(made: Made, seed: int) -> list[ForwardPass]:
    g, found = torch.Generator().manual_seed(seed), []
    shape = (BATCH, 2) if made.twist == "tiny" else (BATCH, 1, 8, 8)
    for _ in range(STEPS):
        x0, noise, other = (torch.randn(shape, generator=g, dtype=torch.float64) for _ in range(3))
        u = made.draw(g)
        a, s, scale = (each.view(-1, *[1] * (len(shape) - 1)) for each in (*made.mix(u), made.shown(u)))
        x_t = a * (other if made.twist == "other noise" else x0) + s * noise
        target = row(made.target, x0, noise, a, s, made.sigma_data)
        told = made.told(u).roll(5) if made.twist == "shuffled" else made.told(u)
        t = None if made.twist == "no time" else told if made.passed is None else made.passed(u)
        call = Call((scale * x_t,), {}) if made.twist == "no time" else Call((scale * x_t, told), {})
        found.append(ForwardPass(torch.zeros(()), t=t, x0=x0, noise=noise, x_t=x_t, target=target, call=call))
    return found


def seen(made: Made, declared: ProcessSpec, seed: int = 0) -> tuple[NoisingFit, ProcessSpec | None]:
    probe = NoisingFit()
    for each in passes(made, seed):
        if (pending := probe.measure(each)) is not None:
            pending.finish(*(tensor.numpy() for tensor in pending.tensors))
    return probe, probe.settle(declared)


def assert_is_right(made: Made, settled: ProcessSpec, seed: int) -> None:
    """x_t, what the network sees and is told, at times that were not seen before."""
    process, u = settled.process, made.draw(torch.Generator().manual_seed(seed))
    assert process is not None
    t = made.told(u) if made.passed is None else made.passed(u)
    for found, wanted in zip(process.at(t), made.mix(u), strict=True):
        assert float((found - wanted).abs().max()) < FORWARD_LIMIT
    shown, told = process.input(torch.ones(BATCH, 2, dtype=torch.float64), t)
    assert torch.allclose(shown[:, 0], made.shown(u), atol=1e-3)
    assert float(((told - made.told(u)).abs() / made.told(u).abs().clamp(min=1)).max()) < 0.01


@pytest.mark.parametrize("name", LOOPS)
def test_loops_that_declare_nothing_are_recognised_or_not_known(name: str) -> None:
    made = LOOPS[name]
    probe, settled = seen(made, ProcessSpec())
    found = probe.recognised
    assert (None if found is None else found.process) == made.process
    assert made.knows in ("" if found is None else found.words())
    assert (None if settled is None else settled.prediction) == made.prediction
    if made.process is None or made.twist:
        assert settled is None, "nothing is proven"
    if settled is not None:
        assert settled.is_seen
        assert settled.sigma_data == pytest.approx(made.sigma_data, rel=1e-3)
        assert_is_right(made, settled, 1)


def test_there_are_thirty() -> None:
    assert len(LOOPS) >= 30


def scheduler(name: str, **settings: Any) -> Any:
    import diffusers

    return getattr(diffusers, name)(**settings)


@pytest.mark.parametrize(
    ("loop", "given"),
    [
        ("rectified flow", lambda: scheduler("FlowMatchEulerDiscreteScheduler")),
        ("SD3", lambda: scheduler("FlowMatchEulerDiscreteScheduler", shift=3.0)),
        ("Flux, t told as a fraction", lambda: scheduler("FlowMatchHeunDiscreteScheduler")),
        ("SiT, towards data", lambda: (lambda t: t, lambda t: 1 - t)),
        ("EDM", lambda: scheduler("EDMEulerScheduler")),
        ("EDM, latents", lambda: scheduler("EDMDPMSolverMultistepScheduler", sigma_data=0.7)),
        ("EDM", edm),
        ("rectified flow", linear_flow),
        ("NCSN", lambda: (torch.ones_like, lambda t: t)),
        ("quarter of a circle", lambda: (lambda t: torch.cos(t * math.pi / 2), lambda t: torch.sin(t * math.pi / 2))),
        ("DDPM, x0, fractions", lambda: LINEAR),
    ],
)
@pytest.mark.parametrize("blind", [False, True], ids=["all passed", "times only"])
def test_times_of_a_declared_process_are_settled(loop: str, given: Callable[[], Any], blind: bool) -> None:
    made, said = LOOPS[loop], declaration_of(given())
    declared = ProcessSpec(said.alphas, None, said.process, family=said.family, is_told=said.process is None)
    probe = NoisingFit()
    for each in passes(made, 2):
        kept = ForwardPass(each.loss, t=each.t, call=each.call) if blind else each
        pending = probe.measure(kept)
        assert pending is not None
        pending.finish(*(tensor.numpy() for tensor in pending.tensors))
    settled = probe.settle(declared)
    if blind and said.alphas is not None:
        assert settled is None, "which fractions of a table these are cannot be known"
        return
    assert settled is not None
    assert not settled.is_seen
    assert settled.is_told
    assert settled.draws is not None
    assert len(settled.draws) == BATCH * STEPS
    assert_is_right(made, settled, 3)


def test_whole_timesteps_of_a_table_need_no_settling() -> None:
    whole = [ForwardPass(each.loss, t=None if each.t is None else each.t.long()) for each in passes(LOOPS["DDPM"], 0)]
    probe = NoisingFit()
    for each in whole:
        pending = probe.measure(each)
        assert pending is not None
        pending.finish(*(tensor.numpy() for tensor in pending.tensors))
    assert probe.settle(ProcessSpec(LINEAR)) is None


def test_a_network_that_is_told_nonsense_is_not_believed() -> None:
    flow_scheduler = declaration_of(scheduler("FlowMatchEulerDiscreteScheduler"))
    probe = NoisingFit()
    for each in passes(LOOPS["SD3"], 0):
        assert each.call is not None
        assert each.t is not None
        call = Call((each.call.x, each.t.roll(3)), {})
        pending = probe.measure(ForwardPass(each.loss, t=each.t, x0=each.x0, noise=each.noise, x_t=each.x_t, call=call))
        assert pending is not None
        pending.finish(*(tensor.numpy() for tensor in pending.tensors))
    settled = probe.settle(ProcessSpec(family=flow_scheduler.family))
    assert settled is not None
    assert settled.process is not None, "x_t is checked all the same"
    assert not settled.is_told
    assert not settled.can_sample


def test_too_few_samples_say_nothing() -> None:
    probe = NoisingFit()
    few = passes(LOOPS["SD3"], 0)[0]
    cut = ForwardPass(few.loss, **{name: getattr(few, name)[:8] for name in ("t", "x0", "noise", "x_t", "target")})
    pending = probe.measure(cut)
    assert pending is not None
    pending.finish(*(tensor.numpy() for tensor in pending.tensors))
    assert probe.settle(ProcessSpec()) is None
