"""The same pictures for each test, whichever tests ran before it."""

from __future__ import annotations

import numpy as np
import oddities
import pytest


def begin_anew() -> None:
    oddities.NOISE = np.random.default_rng(0)


@pytest.fixture(scope="module", autouse=True)
def same_pictures_for_the_module() -> None:
    begin_anew()


@pytest.fixture(autouse=True)
def same_pictures(same_pictures_for_the_module: None) -> None:
    begin_anew()
