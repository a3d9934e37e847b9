"""A prepared set: checked when it is read, and split by content."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from safelight.config.tree import Data
from safelight.data.images import Images, hold_out, straddling
from safelight.data.prepare import open_images
from safelight.errors import DataError


def test_copies_stay_on_one_side_of_the_split(known: tuple[Images, Data]) -> None:
    images, _ = known
    for share in (0.2, 0.5, 0.8):
        train, held = hold_out(images, share)
        assert train is not None
        assert sorted([*train, *held]) == list(range(len(images)))
        assert images.rows is not None
        contents = {row: images.rows["content"][row].tobytes() for row in range(len(images))}
        assert not {contents[row] for row in train} & {contents[row] for row in held}


def test_the_split_is_stable_and_of_the_wanted_size(tmp_path: Path) -> None:
    few = open_images(Data(source="shapes:1000", image_size=8, cache=str(tmp_path)))
    many = open_images(Data(source="shapes:4000", image_size=8, cache=str(tmp_path)))
    held = {share: set(hold_out(many, share)[1].tolist()) for share in (0.1, 0.2)}
    assert abs(len(held[0.1]) - 400) < 80
    assert held[0.1] < held[0.2], "a larger share holds out the same ones and more"
    assert {row for row in held[0.1] if row < 1000} == set(hold_out(few, 0.1)[1].tolist()), "others do not matter"
    assert hold_out(many, 0.0) == (None, pytest.approx([]))


def test_a_split_that_leaves_nothing_is_refused(tmp_path: Path) -> None:
    images = open_images(Data(source="shapes:3", image_size=8, cache=str(tmp_path)))
    for share, words in ((1e-9, "no image to hold out"), (1 - 1e-9, "no image to train on")):
        with pytest.raises(DataError, match=words):
            hold_out(images, share)


def test_near_copies_across_the_split_are_counted(known: tuple[Images, Data]) -> None:
    images, _ = known
    assert images.near is not None
    first = images.near[0].tolist()
    assert straddling(images, first) == 0
    assert straddling(images, first[:1]) == 1


@pytest.mark.parametrize("name", ["pixels.u8", "rows.bin"])
def test_a_cache_that_is_cut_in_use_is_an_error_in_words(tmp_path: Path, name: str) -> None:
    """A page beyond the end of a mapped file ends the process: SIGBUS."""
    images = open_images(Data(source="shapes:2000", image_size=8, cache=str(tmp_path)))
    (file,) = tmp_path.rglob(name)
    os.truncate(file, 100)
    with pytest.raises(DataError, match=rf"{name} in the cache has 100 bytes instead of"):
        images.take(np.arange(1500, 1600))


def test_labels_and_pairs_are_no_longer_mapped(known: tuple[Images, Data]) -> None:
    images, _ = known
    assert not isinstance(images.labels, np.memmap)
    assert not isinstance(images.near, np.memmap)
