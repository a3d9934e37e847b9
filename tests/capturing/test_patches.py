"""What is wrapped is put back, and does nothing once its owner is gone."""

from __future__ import annotations

import types
from collections.abc import Callable

from safelight.capturing.patches import Patches, is_wrapped


class Doubling:
    def double(self, function: Callable[[int], int], number: int) -> int:
        return 2 * function(number)


def test_a_function_is_wrapped_and_put_back() -> None:
    home, patches, owner = types.SimpleNamespace(add=lambda number: number + 1), Patches(), Doubling()
    before = home.add
    patches.wrap(home, "add", owner.double)
    assert (home.add(1), is_wrapped(home, "add")) == (4, True)
    patches.restore()
    assert home.add is before


def test_a_wrapper_does_not_keep_its_owner_and_is_quiet_without_it() -> None:
    home, patches, owner = types.SimpleNamespace(add=lambda number: number + 1), Patches(), Doubling()
    patches.wrap(home, "add", owner.double)
    del owner
    assert home.add(1) == 2


def test_what_somebody_wrapped_again_is_left() -> None:
    home, patches, owner = types.SimpleNamespace(add=lambda number: number + 1), Patches(), Doubling()
    patches.wrap(home, "add", owner.double)
    inner = home.add
    home.add = lambda number: inner(number)
    theirs = home.add
    patches.restore()
    assert home.add is theirs
