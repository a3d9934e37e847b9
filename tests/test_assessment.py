"""Two sets of images against each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from safelight.assessment import FeatureChoice, assess_sets
from safelight.config.tree import Data
from safelight.data.sources.shapes import shapes
from safelight.evaluate.examination import Real, examine
from safelight.evaluate.piles import pile_features


@pytest.fixture(scope="module")
def piles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two draws of one kind, 6 images each."""
    found = tmp_path_factory.mktemp("piles")
    pixels = np.concatenate([part for part, _ in shapes(Data(source="shapes:12", image_size=16)).chunks()])
    for place, one in (("first", pixels[:6]), ("second", pixels[6:])):
        (found / place).mkdir()
        for number, picture in enumerate(one):
            Image.fromarray(picture).save(found / place / f"{number:02}.png")
    return found / "first", found / "second"


def test_the_choice_of_either_pile_counts(piles: tuple[Path, Path]) -> None:
    found = assess_sets(
        *map(str, piles), FeatureChoice(components=2), most=None, say=pytest.fail, advance=lambda *_: None
    )
    samples, real = (pile_features(str(pile), found.extractor, say=pytest.fail) for pile in piles)
    alone = examine(samples, Real(real, found.extractor.label, components=2))
    assert found.examination.distance.value == alone.distance.value
    assert found.examination.distance.error > alone.distance.error
    assert found.examination.kernel.value == alone.kernel.value
    assert found.examination.kernel.error > alone.kernel.error
