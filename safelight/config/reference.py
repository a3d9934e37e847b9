"""Every setting in words, read from the config tree itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from safelight.config import tree
from safelight.config.presets import FLAGS
from safelight.config.resolve import describe, flatten, to_dict, types_of_fields
from safelight.config.tree import Config

UNSET = "unset"


@dataclass(frozen=True, slots=True)
class Setting:
    """One field of the tree, in words."""

    key: str  # dotted
    type: str
    default: str
    help: str

    @property
    def flag(self) -> str | None:
        """The short form of it on the command line."""
        name = next((name for name, key in FLAGS.items() if key == self.key), None)
        return {None: None, "data": "DATA"}.get(name, f"--{(name or '').replace('_', '-')}")


def settings() -> list[Setting]:
    """Every setting, in the order of the tree."""
    helps = {f"{section}.{name}": text for section, (_, texts) in sections().items() for name, text in texts.items()}
    defaults = flatten(to_dict(Config()))
    return [
        Setting(key, describe(hint), spell(defaults[key]), helps.get(key, ""))
        for key, hint in types_of_fields().items()
    ]


def sections() -> dict[str, tuple[str, dict[str, str]]]:
    """{"train": ("How long, how wide, on what.", {"steps": "Optimizer steps …", …}), …}."""
    written = docstrings(Path(tree.__file__).read_text(encoding="utf-8"))
    return {field.name: written[str(field.type)] for field in fields(Config)}


def docstrings(source: str) -> dict[str, tuple[str, dict[str, str]]]:
    """For every class in a module its docstring, and the string that follows each field.

    Python drops the strings after fields, so they are read from the source.
    """
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    return {node.name: (ast.get_docstring(node) or "", dict(_after_fields(node))) for node in classes}


def _after_fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for line, following in zip(node.body, node.body[1:], strict=False):
        match line, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, " ".join(text.split())


def spell(value: Any) -> str:
    """A value as it is written after --set or in YAML."""
    if value is None:
        return UNSET
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(spell, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
