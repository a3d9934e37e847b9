"""Loops that declare nothing: recognised right, or not at all."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from safelight.diffusion.recognition import FittedCoefficients, RecognisedProcess, recognise

N = 512
DRAW = np.random.default_rng(1)
UNIFORM = DRAW.uniform(0, 1, N)
LOGIT = 1 / (1 + np.exp(-DRAW.normal(0, 1, N)))
SIGMA = np.exp(DRAW.normal(-1.2, 1.2, N))
WHOLE = DRAW.integers(0, 1000, N)
LINEAR = np.cumprod(1 - np.linspace(1e-4, 0.02, 1000))
COSINE = np.cos((np.arange(1, 1001) / 1000 + 0.008) / 1.008 * math.pi / 2) ** 2
SHIFTED = 3 * UNIFORM / (1 + 2 * UNIFORM)


def flow(s: np.ndarray, t: np.ndarray, target: str, sign: float = 1) -> FittedCoefficients:
    return _made(1 - s, s, t, target, sign)


def vp(kept: np.ndarray, t: np.ndarray, target: str, sign: float = 1) -> FittedCoefficients:
    return _made(np.sqrt(kept), np.sqrt(1 - kept), t, target, sign)


def ve(sigma: np.ndarray, t: np.ndarray, target: str) -> FittedCoefficients:
    return _made(np.ones_like(sigma), sigma, t, target)


def edm(sigma: np.ndarray, t: np.ndarray, target: str, sigma_data: float = 0.5) -> FittedCoefficients:
    scale = 1 / np.sqrt(sigma**2 + sigma_data**2)
    return _made(scale, sigma * scale, t, target, sigma_data=sigma_data)


def _made(
    a: np.ndarray, s: np.ndarray, t: np.ndarray, target: str, sign: float = 1, sigma_data: float = 0.5
) -> FittedCoefficients:
    zero, one = np.zeros_like(a), np.ones_like(a)
    with np.errstate(divide="ignore"):
        score = -1 / s
    root = np.hypot(s, sigma_data * a)
    length = np.hypot(a, s)
    p, q = {
        "epsilon": (zero, one),
        "sample": (one, zero),
        "v": (-s / length, a / length),
        "flow": (-one, one),
        "score": (zero, score),
        "edm": (s / (sigma_data * root), -sigma_data * a / root),
        "unrelated": (0.3 * one, 0.4 * one),
    }[target]
    return FittedCoefficients(a, s, t.astype(float), sign * p, sign * q)


ANGLE = UNIFORM * math.pi / 2
KNOWN: list[tuple[str, FittedCoefficients, dict[str, Any]]] = [
    (
        "rectified flow",
        flow(UNIFORM, UNIFORM, "flow"),
        {"process": "flow", "target": "flow", "time": "t = s", "time_rises": True, "density": "uniform times"},
    ),
    (
        "towards data",
        flow(UNIFORM, 1 - UNIFORM, "flow", -1),
        {"process": "flow", "target": "-flow", "time": "t = (1 − s)", "time_rises": False},
    ),
    (
        "sd3",
        flow(LOGIT, 1000 * LOGIT, "flow"),
        {"process": "flow", "target": "flow", "time": "t = 1000·s", "density": "logit-normal(0, 1) times"},
    ),
    ("whole flow", flow(WHOLE / 1000, WHOLE, "flow"), {"process": "flow", "time": "t = 1000·s"}),
    ("counted from one", flow((WHOLE + 1) / 1000, WHOLE, "flow"), {"process": "flow", "time": "t = 1000·s"}),
    (
        "shifted, shown after",
        flow(SHIFTED, SHIFTED, "flow"),
        {"process": "flow", "time": "t = s", "density": "uniform with a shift of about 3 times"},
    ),
    ("shifted, shown before", flow(SHIFTED, UNIFORM, "flow"), {"process": "flow", "time": "t before a shift of 3"}),
    ("flow, x0", flow(UNIFORM, UNIFORM, "sample"), {"process": "flow", "target": "sample"}),
    ("flow, noise", flow(LOGIT, LOGIT, "epsilon"), {"process": "flow", "target": "epsilon"}),
    ("flow, v", flow(UNIFORM, UNIFORM, "v"), {"process": "flow", "target": "v"}),
    (
        "ddpm",
        vp(LINEAR[WHOLE], WHOLE, "epsilon"),
        {
            "process": "vp",
            "target": "epsilon",
            "time": "whole timesteps",
            "time_rises": True,
            "density": "uniform times",
        },
    ),
    ("ddpm, x0", vp(LINEAR[WHOLE], WHOLE, "sample"), {"process": "vp", "target": "sample"}),
    ("ddpm, v", vp(LINEAR[WHOLE], WHOLE, "v"), {"process": "vp", "target": "v"}),
    ("cosine, v", vp(COSINE[WHOLE], WHOLE, "v"), {"process": "vp", "target": "v", "time": "whole timesteps"}),
    ("cosine, noise", vp(COSINE[WHOLE], WHOLE, "epsilon"), {"process": "vp", "target": "epsilon"}),
    ("in [0, 1]", vp(LINEAR[WHOLE], WHOLE / 1000, "epsilon"), {"process": "vp", "time": "t in [0, 1]"}),
    ("score", vp(LINEAR[WHOLE], WHOLE, "score"), {"process": "vp", "target": "score"}),
    (
        "cosine flow",
        _made(np.cos(ANGLE), np.sin(ANGLE), UNIFORM, "v"),
        {"process": "vp", "target": "v", "time": "t in [0, 1]"},
    ),
    ("opposite v", vp(COSINE[WHOLE], WHOLE, "v", -1), {"process": "vp", "target": "-v"}),
    ("reversed time", vp(LINEAR[WHOLE], 999 - WHOLE, "epsilon"), {"process": "vp", "time_rises": False}),
    (
        "ve, sigma",
        ve(SIGMA, SIGMA, "epsilon"),
        {"process": "ve", "target": "epsilon", "time": "t = sigma", "density": "log-normal(-1.2, 1.2) times"},
    ),
    (
        "ve, log sigma",
        ve(SIGMA, np.log(SIGMA), "score"),
        {"process": "ve", "target": "score", "time": "t = log(sigma)"},
    ),
    (
        "ve, x0",
        ve(SIGMA, np.log(SIGMA) / 4, "sample"),
        {"process": "ve", "target": "sample", "time": "t = log(sigma) / 4"},
    ),
    (
        "edm",
        edm(SIGMA, np.log(SIGMA) / 4, "edm"),
        {"process": "edm", "sigma_data": 0.5, "target": "edm", "time": "t = log(sigma) / 4"},
    ),
    ("edm, x0", edm(SIGMA, np.log(SIGMA) / 4, "sample"), {"process": "edm", "target": "sample"}),
    (
        "edm, latents",
        edm(SIGMA, SIGMA, "edm", 0.7),
        {"process": "edm", "sigma_data": 0.7, "target": "edm", "time": "t = sigma"},
    ),
    ("edm outside of the network", ve(SIGMA, np.log(SIGMA) / 4, "edm"), {"process": "ve", "target": "edm"}),
]


@pytest.mark.parametrize(("found", "wanted"), [row[1:] for row in KNOWN], ids=[row[0] for row in KNOWN])
def test_what_a_loop_trains_is_recognised(found: FittedCoefficients, wanted: dict[str, Any]) -> None:
    recognised = recognise(found)
    assert {name: _rounded(getattr(recognised, name)) for name in wanted} == wanted
    assert recognised.is_known
    assert "not known" not in recognised.words()


def _rounded(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value


HALF = np.full(N, 0.5)
UNKNOWN: list[tuple[str, FittedCoefficients, dict[str, Any]]] = [
    ("one noise level", flow(HALF, HALF, "flow"), {"process": None}),
    ("few samples", flow(UNIFORM[:8], UNIFORM[:8], "flow"), {"process": None}),
    ("no process", _made(1 - UNIFORM**2, UNIFORM, UNIFORM, "flow"), {"process": None, "target": None}),
    ("no target", flow(UNIFORM, UNIFORM, "unrelated"), {"process": "flow", "target": None}),
    ("ddpm with a flow target", vp(LINEAR[WHOLE], WHOLE, "flow"), {"process": "vp", "target": "flow"}),
    ("shuffled times", flow(UNIFORM, UNIFORM[::-1], "flow"), {"process": "flow", "time": None, "time_rises": None}),
    (
        "constant time in ddpm",
        vp(LINEAR[WHOLE], np.zeros(N), "epsilon"),
        {"process": "vp", "time": None, "density": None},
    ),
    ("constant time", flow(UNIFORM, HALF, "flow"), {"process": "flow", "time": None, "time_rises": None}),
]


@pytest.mark.parametrize(("found", "wanted"), [row[1:] for row in UNKNOWN], ids=[row[0] for row in UNKNOWN])
def test_nothing_is_recognised_wrongly(found: FittedCoefficients, wanted: dict[str, Any]) -> None:
    recognised = recognise(found)
    assert {name: getattr(recognised, name) for name in wanted} == wanted


def swapped(p: np.ndarray, q: np.ndarray, kept: np.ndarray = COSINE[WHOLE]) -> FittedCoefficients:
    return FittedCoefficients(np.sqrt(kept), np.sqrt(1 - kept), WHOLE.astype(float), p, q)


A, S = np.sqrt(COSINE[WHOLE]), np.sqrt(1 - COSINE[WHOLE])
SWAPPED: list[tuple[str | None, FittedCoefficients, str]] = [
    ("s·noise − a·x0", swapped(-A, S), "s·noise − a·x0"),
    ("a·x0 − s·noise", swapped(A, -S), "a·x0 − s·noise"),
    ("a·noise + s·x0", swapped(S, A), "a·noise + s·x0"),
    ("a·x0 + s·noise", swapped(A, S), "a·x0 + s·noise"),
    ("noise + x0", FittedCoefficients(1 - UNIFORM, UNIFORM, UNIFORM, np.ones(N), np.ones(N)), "noise + x0"),
    (None, swapped(-1.05 * A, S), "p·x0 + q·noise without a name, p from -1.05 to "),
    (None, swapped(0.3 + 0 * A, 0.4 + 0 * A), "p·x0 + q·noise without a name, p 0.3 and q 0.4"),
    (None, vp(COSINE[WHOLE], WHOLE, "v"), "v = a·noise − s·x0"),
]


@pytest.mark.parametrize(("formula", "found", "words"), SWAPPED)
def test_a_target_with_signs_or_factors_swapped_is_named_by_its_formula(
    formula: str | None, found: FittedCoefficients, words: str
) -> None:
    recognised = recognise(found)
    assert recognised.target_swapped == formula
    assert f"target {words}" in recognised.words()
    assert recognised.is_known == (formula is not None or recognised.target is not None)


@pytest.mark.parametrize("size", [0.02, 0.1])
def test_coefficients_that_are_off_are_not_recognised(size: float) -> None:
    for name, found, _ in KNOWN:
        off = FittedCoefficients(found.a * (1 + size), found.s, found.t, found.p, found.q)
        assert recognise(off).process not in {recognise(found).process} - {"edm"}, name


def test_samples_that_are_off_by_rounding_are_recognised() -> None:
    draw = np.random.default_rng(1)
    for name, found, wanted in KNOWN:
        if "score" in name:
            continue  # its rows are as large as 100
        a, s = (each + 2e-4 * draw.normal(size=N) for each in (found.a, found.s))
        noisy = FittedCoefficients(a, s, found.t, found.p, found.q)
        assert recognise(noisy).process == recognise(found).process == wanted["process"], name


def test_words_name_what_is_not_known() -> None:
    assert (
        RecognisedProcess().words() == "a process that is not known, target that is not known, a time that is not known"
    )
    assert recognise(KNOWN[2][1]).words() == ("flow matching, target noise − x0, t = 1000·s, logit-normal(0, 1) times")
