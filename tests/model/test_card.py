"""The model card names what it is of; that its lines work is shown in tests/test_export.py."""

from __future__ import annotations

import pytest

from safelight.config.resolve import resolve
from safelight.model.card import model_card


@pytest.mark.parametrize(("process", "words"), [("flow", "noise − x0"), ("edm", "log(σ) / 4")])
def test_the_card_has_code_that_compiles_and_the_numbers_of_the_model(process: str, words: str) -> None:
    settings = {"diffusion.process": process, "diffusion.prediction": process, "data.channels": 3}
    card = model_card(resolve(settings=settings), "SomeScheduler")
    assert words in card
    assert "torch.randn(4, 3, 32, 32)" in card
    compile(card.split("```python\n")[1].split("```")[0], "card", "exec")
    assert len(card.split("```python\n")[1].split("```")[0].strip().splitlines()) <= 15
