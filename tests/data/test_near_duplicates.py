"""Images that look alike are found, and others are not."""

from __future__ import annotations

from safelight.config.tree import Data
from safelight.data.images import Images


def test_pictures_that_look_alike_are_found_and_others_are_not(known: tuple[Images, Data]) -> None:
    images, _ = known
    wanted = {("many/02.png", "many/again.jpg"), ("many/03.png", "some/brighter.png")}
    assert images.near is not None
    assert images.names is not None
    assert {(images.names[a], images.names[b]) for a, b in images.near.tolist()} == wanted
