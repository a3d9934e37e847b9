"""The faults, one file for each family; every `Fault` in them is found by itself."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from gauntlet.fault import Fault


@functools.cache
def all_faults() -> dict[str, Fault]:
    """By id, in the order of the files."""
    found: dict[str, Fault] = {}
    for module in pkgutil.iter_modules(__path__):
        for each in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if isinstance(each, Fault):
                assert each.id not in found, f"two faults are called {each.id}"
                found[each.id] = each
    return found
