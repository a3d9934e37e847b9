"""Conditions of any kind, wherever they stand in a call: heard or not, empty, constant, of other samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from safelight.probes.conditions import exchange_conditions, has_null_gradient, measure_conditions
from safelight.probes.forward_pass import Call, ForwardPass, Repeats
from safelight.probes.update import copy_state

RANDOM = torch.Generator().manual_seed(0)
X, T = torch.randn(8, 4, 4, 4, generator=RANDOM), torch.rand(8, generator=RANDOM)
TEXT, POOLED = torch.randn(8, 5, 16, generator=RANDOM) + torch.arange(8.0).view(8, 1, 1), torch.randn(8, 16)
LABELS = torch.arange(8)


class Told(nn.Module):
    """Adds what it is told to its input, `strength` times."""

    def __init__(self, strength: float = 1.0) -> None:
        super().__init__()
        self.weight, self.strength = nn.Parameter(torch.ones(1)), strength

    def forward(self, x: Tensor, t: Tensor, *rest: Any, **named: Any) -> Tensor:
        told = [each for _, each in Call(rest, named)._tensors() if len(each) == len(x)]
        return self.weight * x + self.strength * sum(each.float().flatten(1).mean(1).view(-1, 1, 1, 1) for each in told)


@pytest.mark.parametrize(
    ("inputs", "named", "count"),
    [
        ((X, T), {}, 0),
        ((X, T, TEXT), {}, 1),
        ((X, T), {"encoder_hidden_states": TEXT, "pooled_projections": POOLED, "return_dict": False}, 2),
        ((X, T, TEXT), {"added_cond_kwargs": {"text_embeds": POOLED, "time_ids": torch.ones(8, 6)}}, 3),
        ((X, T), {"obs": {"image": torch.randn(8, 3, 2, 2), "state": [POOLED]}}, 2),
        ((T, X), {"y": LABELS}, 1),
        ((), {"encoder_hidden_states": TEXT, "hidden_states": X, "timestep": T}, 1),
        ((X, T.view(8, 1, 1, 1), POOLED), {}, 1),
        ((X, T, torch.ones(3)), {}, 0),
    ],
)
def test_conditions_are_found_wherever_they_stand(inputs: Any, named: Any, count: int) -> None:
    call = Call(inputs, named, X)
    assert call.x is X
    assert call.t is not None
    assert torch.equal(call.t, T)
    assert len(call.conditions) == count


def test_other_times_are_put_where_they_stood() -> None:
    changed = Call((X, T.view(8, 1, 1, 1)), {}, X).with_changes(t=torch.zeros(8))
    assert changed.inputs[1].shape == (8, 1, 1, 1)
    assert not changed.inputs[1].any()


@pytest.mark.parametrize(
    ("condition", "empty", "constant"),
    [
        (TEXT, 0, 0),
        (torch.zeros(8, 5, 16), 1, 1),
        (TEXT[:1].expand(8, 5, 16), 0, 1),
        (torch.cat([torch.zeros(7, 5, 16), TEXT[:1]]), 0, 0),
    ],
)
def test_empty_and_constant_ones_are_seen(condition: Tensor, empty: float, constant: float) -> None:
    found = measure_conditions(Call((X, T, condition), {}, X))
    assert (found["conditions/count"], found["conditions/empty"], found["conditions/constant"]) == (1, empty, constant)


def test_a_flag_that_is_off_is_not_an_empty_condition() -> None:
    assert "conditions/empty" not in measure_conditions(Call((X, T, torch.zeros(8, 9)), {}, X))


def exchanged(strength: float, target: Callable[[Tensor], Tensor]) -> dict[str, float]:
    model = Told(strength)
    call = Call((X, T, TEXT), {}, model(X, T, TEXT).detach())
    assert call.output is not None
    before = copy_state(list(model.named_parameters()), None)
    return exchange_conditions(
        Repeats(model), before, ForwardPass(torch.zeros(()), target=target(call.output), call=call)
    )


def test_conditions_that_are_not_heard_change_nothing() -> None:
    assert exchanged(0.0, lambda output: output)["response/conditions"] == 0


def test_the_right_conditions_help_and_others_do_not() -> None:
    right = exchanged(1.0, lambda output: output)
    assert right["response/conditions"] > 0.01
    assert right["conditions/gain"] > 0.1
    unrelated = exchanged(1.0, lambda output: torch.randn(output.shape, generator=torch.Generator().manual_seed(3)) * 9)
    assert abs(unrelated["conditions/gain"]) < 3 * unrelated["conditions/gain_error"]


@pytest.mark.parametrize(("row", "trained"), [(8, True), (None, False)])
def test_labels_that_are_dropped_inside_are_seen_by_their_row(row: int | None, trained: bool) -> None:
    table = nn.Embedding(9, 4)
    shown = LABELS if row is None else torch.where(LABELS == 3, row, LABELS)
    table(shown).sum().backward()
    assert has_null_gradient(nn.Sequential(table), Call((X, T, LABELS), {}, X)) == trained
