"""The scenarios, one file for each kind of harm; every `Scenario` in them is found by itself."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from torture.scenario import Scenario


@functools.cache
def all_scenarios() -> dict[str, Scenario]:
    """By name; properties before controls, and within these in the order of the files."""
    found: dict[str, Scenario] = {}
    for module in pkgutil.iter_modules(__path__):
        for each in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if isinstance(each, Scenario) and found.setdefault(each.name, each) is not each:
                raise ValueError(f"two scenarios are called {each.name}")
    return dict(sorted(found.items(), key=lambda pair: pair[1].is_control))
