"""A call with other samples in the same places."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from safelight.probes.call_template import CallTemplate, NotMeasurable
from safelight.probes.forward_pass import Call

X, T, LABELS = torch.zeros(3, 2, 4), torch.tensor([1, 2, 3]), torch.tensor([7, 8, 9])
SHARED = torch.ones(5)


@pytest.mark.parametrize(
    ("inputs", "named", "extras"),
    [
        ((X, T), {}, ()),
        ((X, T, LABELS), {}, (2,)),
        ((X,), {"timestep": T, "class_labels": LABELS, "scale": 2, "table": SHARED}, ("class_labels",)),
        ((), {"sample": X.double(), "timestep": T.float(), "text": torch.zeros(3, 7, 7)}, ("text",)),
    ],
)
def test_samples_are_replaced_and_the_rest_is_kept(inputs: Any, named: Any, extras: tuple[Any, ...]) -> None:
    call = Call(inputs, named, output=X, random=torch.zeros(1))
    template = CallTemplate(call)
    assert template.extras == extras
    found = template.extras_of(call)
    assert found is not None
    others = {key: value[:1].expand(5, *value.shape[1:]) for key, value in found.items()}
    filled = template.fill(torch.ones(5, 8), torch.arange(5), others)
    assert filled.x is not None
    assert filled.t is not None
    assert call.x is not None
    assert call.t is not None
    assert filled.x.shape == (5, 2, 4)
    assert (filled.x.dtype, filled.t.dtype) == (call.x.dtype, call.t.dtype)
    assert filled.t.tolist() == list(range(5))
    assert filled.random is None
    assert [filled.named.get(name) for name in ("scale", "table")] == [named.get("scale"), named.get("table")]


@pytest.mark.parametrize(
    ("inputs", "named", "words"),
    [
        ((X,), {}, "timestep for each sample"),
        ((X, torch.tensor(5)), {}, "timestep for each sample"),
        ((X, T), {"added": {"text": LABELS}}, "inside of `added`"),
        ((X, T, [LABELS]), {}, "inside of input 3"),
    ],
)
def test_calls_that_others_cannot_stand_in_for(inputs: Any, named: Any, words: str) -> None:
    with pytest.raises(NotMeasurable, match=words):
        CallTemplate(Call(inputs, named))


def test_a_call_without_the_same_extras_is_seen() -> None:
    template = CallTemplate(Call((X, T, LABELS), {}))
    assert template.extras_of(Call((X, T, None), {})) is None
