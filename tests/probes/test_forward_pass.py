"""A micro-batch and the call of the network in it: what is found where, and what can be repeated."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from micro_batches import ALPHAS, batch, declared, micro_batch, network, noised, step
from torch import Tensor

from safelight.diffusion.process import Process, edm, linear_flow
from safelight.model.calls import answer_of
from safelight.probes.forward_pass import Call, ForwardPass, ProcessSpec

X0, NOISE, T = batch(8)
LABELS = torch.arange(8) % 3


@pytest.mark.parametrize(
    ("name", "inputs", "named", "t", "labels"),
    [
        ("by place", (X0, T, LABELS), {}, T, LABELS),
        ("by name", (X0,), {"timestep": T, "class_labels": LABELS}, T, LABELS),
        ("all named", (), {"x": X0, "t": T, "y": LABELS}, T, LABELS),
        ("no labels", (X0, T), {}, T, None),
        ("one timestep for all", (X0, torch.tensor(5)), {}, None, None),
        ("text instead of labels", (X0, T, torch.zeros(8, 77, 16)), {}, T, None),
        ("no images", (T,), {}, None, None),
    ],
)
def test_what_a_call_is_made_of(
    name: str, inputs: tuple[Any, ...], named: dict[str, Any], t: Tensor | None, labels: Tensor | None
) -> None:
    call = Call(inputs, named)
    assert call.t is t
    assert call.labels is labels
    assert call.x is (None if name == "no images" else X0)


def test_the_signature_says_which_input_is_the_time() -> None:
    """As in model(x, c, t, mask), whose second input is the class."""
    inputs, names = (X0, LABELS, T, torch.ones(len(T))), ("x", "c", "t", "mask")
    call = Call(inputs, {}, parameters=names)
    assert call.t is T
    assert call.labels is LABELS
    assert call.with_changes(t=T + 1).inputs[1] is LABELS
    assert call.of_first(2).t is not None
    assert Call(inputs, {}).t is LABELS, "the control: by their places"
    assert Call((X0, T, LABELS), {}, parameters=("images", "steps", "kind")).t is T


def test_other_values_in_the_same_places() -> None:
    call = Call((X0, T), {"labels": LABELS, "return_dict": False})
    changed = call.with_changes(t=T + 1, labels=LABELS + 1)
    assert changed.x is X0
    assert torch.equal(changed.inputs[1], T + 1)
    assert torch.equal(changed.named["labels"], LABELS + 1)
    assert changed.named["return_dict"] is False
    assert call.t is T, "the call itself stays as it was"


def test_the_first_samples_only() -> None:
    shared = torch.zeros(3)
    first = Call((X0, T, shared), {"labels": LABELS, "scale": 2.0}, output=NOISE).of_first(2)
    assert first.output is not None
    assert [len(each) for each in (*first.inputs, first.named["labels"], first.output)] == [2, 2, 3, 2, 2]
    assert first.named["scale"] == 2.0


def test_a_detached_call_has_no_graph() -> None:
    x = X0.clone().requires_grad_()
    call = Call((x, T), {"more": x}, output=x * 2).detached()
    assert call.output is not None
    assert not any(each.requires_grad for each in (call.inputs[0], call.named["more"], call.output))


@pytest.mark.parametrize("half", [None, torch.bfloat16])
def test_a_call_is_repeated_with_its_dropout_and_precision(half: torch.dtype | None) -> None:
    model = network(dropout=0.5)
    random = torch.get_rng_state()
    with torch.autocast("cpu", dtype=half, enabled=half is not None):
        answer = model(X0, T)
    before = torch.get_rng_state()
    assert torch.equal(Call((X0, T), {}, half=half, random=random).again(model), answer)
    assert not torch.equal(Call((X0, T), {}, half=half).again(model), answer), "the control: other random numbers"
    assert torch.equal(torch.get_rng_state(), before)


class Output:
    sample = NOISE


@pytest.mark.parametrize(
    ("output", "answer"),
    [(NOISE, NOISE), (Output(), NOISE), ((NOISE, "more"), NOISE), ([NOISE], NOISE), ("text", None), ((), None)],
)
def test_the_tensor_in_what_a_network_returned(output: Any, answer: Tensor | None) -> None:
    assert answer_of(output) is answer


def test_what_is_not_passed_is_taken_from_the_call() -> None:
    call = Call((X0, T), {}, output=NOISE)
    bare, full = ForwardPass(torch.ones(()), call=call), micro_batch(pred=NOISE, call=call)
    assert (bare.input, bare.times, bare.answer) == (X0, T, NOISE)
    assert (full.input, full.times, full.answer) == (full.x_t, full.t, full.pred)
    assert (bare.is_complete, full.is_complete, micro_batch().is_complete) == (False, True, False)


@pytest.mark.parametrize(
    ("changes", "replayable"),
    [({}, True), ({"call": None}, False), ({"target": None}, False), ({"target": torch.zeros(16, 16)}, False)],
)
def test_what_can_be_replayed(changes: dict[str, Any], replayable: bool) -> None:
    given, _ = step(network(), **changes)
    assert (given.replayable is not None) == replayable


def test_the_coefficients_are_those_of_the_declared_schedule() -> None:
    coefficients = declared().coefficients(T, X0)
    assert coefficients is not None
    a, s = coefficients
    assert torch.allclose(a * X0 + s * NOISE, noised(X0, NOISE, T), atol=1e-6)
    assert declared().timesteps == len(ALPHAS)
    for times in (T / 1000, T[:3]):  # no index, and not one for each sample
        assert declared().coefficients(times, X0) is None


@pytest.mark.parametrize(
    ("told", "little"),
    [(ProcessSpec(None, "edm", edm()), True), (ProcessSpec(None, "flow", linear_flow()), False),
     (ProcessSpec(ALPHAS), False),
     (ProcessSpec(), False)],
    ids=["edm", "flow", "table", "nothing"],
)  # fmt: skip
def test_only_edm_tells_times_that_hardly_differ(told: ProcessSpec, little: bool) -> None:
    """So that embeddings that are nearly alike are reported of all others."""
    assert told.tells_little == little


@pytest.mark.parametrize("process", [edm(), linear_flow()], ids=["edm", "flow"])
def test_continuous_time_has_coefficients_at_floats_only(process: Process) -> None:
    told, t = ProcessSpec(None, "sample", process), torch.linspace(0.1, 0.9, 8)
    found = told.coefficients(t, X0)
    assert found is not None
    assert torch.allclose(found[1].flatten(), t)
    assert found[0].dtype == X0.dtype
    assert told.coefficients(T, X0) is None
    assert declared().coefficients(t, X0) is None, "nor a table at floats"
    assert told.timesteps is None, "so that gaps between drawn timesteps are not looked for"
