"""The filter on disk: the same bytes as a fresh one, and fitted anew where it is not what was written."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from safelight.yardstick.cache import cached_linear, filter_path
from safelight.yardstick.linear import LinearDenoiser, fit_linear

IMAGES = torch.rand(80, 1, 4, 4, generator=torch.Generator().manual_seed(0)) * 2 - 1


class Fit:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> LinearDenoiser:
        self.calls += 1
        return fit_linear([IMAGES])


def is_same(one: LinearDenoiser, other: LinearDenoiser) -> bool:
    pairs = ((getattr(one, name), getattr(other, name)) for name in ("mean", "vectors", "variances"))
    return one.count == other.count and all(torch.equal(a, b) for a, b in pairs)


def test_it_is_fitted_once_and_read_with_the_same_bytes(tmp_path: Path) -> None:
    fit, path = Fit(), filter_path(tmp_path, data="a", read=80)
    first, second = cached_linear(path, fit), cached_linear(path, fit)
    assert fit.calls == 1
    assert is_same(first, second)


@pytest.mark.parametrize("damage", ["cut", "flipped", "nonsense"])
def test_a_damaged_file_is_fitted_anew(tmp_path: Path, damage: str) -> None:
    fit, path = Fit(), filter_path(tmp_path, data="a")
    first, whole = cached_linear(path, fit), path.read_bytes()
    flipped = whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:]
    path.write_bytes({"cut": whole[:-20], "flipped": flipped, "nonsense": b"nothing"}[damage])
    assert is_same(cached_linear(path, fit), first)
    assert is_same(cached_linear(path, fit), first)
    assert fit.calls == 2


def test_a_folder_that_cannot_be_written_to_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "filters").write_text("a file where the folder should be")
    assert is_same(cached_linear(filter_path(tmp_path, data="a"), Fit()), Fit()())


def test_other_images_have_another_file(tmp_path: Path) -> None:
    assert filter_path(tmp_path, data="a", read=1) != filter_path(tmp_path, data="b", read=1)
    assert cached_linear(None, (fit := Fit())).count == 80
    assert fit.calls == 1
