"""Training: the step, the loop around it, and the state that survives."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any


class _Verb(types.ModuleType):
    """`safelight.train(…)` is a verb of the library, and this package has the same name: importing it puts the
    package in the verb's place, so the package has to do what the verb does."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return importlib.import_module("safelight.library").train(*arguments, **named)


sys.modules[__name__].__class__ = _Verb
