"""Puts a config together: default < preset < file < flags, every value checked against its field."""

from __future__ import annotations

import difflib
import functools
import math
import reprlib
import types
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from safelight.config.effect import select_parent_options
from safelight.config.epochs import number_of
from safelight.config.phrases import nearest_setting
from safelight.config.presets import PRESETS
from safelight.config.tree import Config, Epochs
from safelight.errors import UsageError
from safelight.files.reading import read_anything

LARGEST_FILE = 1 << 16  # twenty full configs; PyYAML needs a second for as much
TYPES_IN_WORDS: dict[Any, str] = {
    int: "a whole number", float: "a number", bool: "true or false", str: "a word", type(None): "none",
    Epochs: "epochs such as 5ep",
}  # fmt: skip


def resolve(
    *,
    preset: str | None = None,
    file: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    base: Config | None = None,
    say: Callable[[str], object] = lambda text: None,
) -> Config:
    """`settings` are dotted: {"train.steps": 100}. A later layer wins. `say`: what was chosen besides."""
    config = base or Config()
    if preset is not None:
        if preset not in PRESETS:
            raise UsageError(f"--preset is {preset!r}, which does not exist{nearest(preset, PRESETS)}")
        config = apply(config, flatten(PRESETS[preset]), f"preset {preset}")
    if file is not None:
        config = apply(config, flatten(read_yaml(file)), str(file), say)
    return apply(config, settings or {}, None, say)


def apply(
    config: Config, settings: Mapping[str, Any], origin: str | None, say: Callable[[str], object] = lambda text: None
) -> Config:
    """Sets dotted keys, or says which key, which value, what was expected and what it may have meant."""
    before = config
    for key, value in settings.items():
        config = _set(config, key, value, f" (in {origin})" if origin else "")
    if "train.steps" in settings and config.train.epochs is not None:  # the later layer decides the length
        if settings.get("train.epochs") is not None:
            raise UsageError("train.steps and train.epochs are two lengths of one run. Leave one of the two out.")
        config = replace(config, train=replace(config.train, epochs=None))
    config, chosen = select_parent_options(config, settings, refuse=origin is None)
    for line in chosen:
        say(line)
    if "data.image_size" in settings and not {"model.attention", "model.widths"} & settings.keys():
        return _with_attention_on_the_same_levels(config, before)
    return config


def _with_attention_on_the_same_levels(config: Config, before: Config) -> Config:
    """`--image-size 64` over a preset for 32 px: attention is named by the side of its level, which changed too."""
    old, new = before.data.image_size, config.data.image_size
    levels = {old // 2**level: new // 2**level for level in range(len(config.model.widths))}
    attention = tuple(levels.get(side, side) for side in config.model.attention)
    return replace(config, model=replace(config.model, attention=attention))


def _set(config: Config, key: str, value: Any, where: str) -> Config:
    section_name, _, name = key.partition(".")
    hints = types_of_fields()
    if key not in hints:
        if first := next((name for name in hints if name.startswith(f"{key}.")), None):
            inside = f"set what is in it, such as {first}."
            raise UsageError(f"{key} is {_shown(value)}{where}, but it is a section: {inside}")
        raise UsageError(f"There is no setting {key!r}{where}{nearest_setting(key, hints)}")
    value = convert(key, value, hints[key], where)
    section = replace(getattr(config, section_name), **{name: value})
    return replace(config, **{section_name: section})


@functools.cache
def types_of_fields(*, ranges: bool = False) -> dict[str, Any]:
    """Every dotted key with its type; with `ranges`, as the tree annotates it."""
    return {
        f"{section.name}.{name}": hint
        for section in fields(Config)
        for name, hint in get_type_hints(section.default_factory, include_extras=ranges).items()
    }


def convert(key: str, value: Any, hint: Any, where: str = "") -> Any:
    """The value as its field wants it; a word from the command line is read as YAML would."""
    for option in _options(hint):
        with suppress(TypeError, ValueError, OverflowError):
            return _fitted(value, option)
    raise UsageError(f"{key} is {_shown(value)}{where}, but it must be {describe(hint)}{_near_word(value, hint)}")


def _options(hint: Any) -> tuple[Any, ...]:
    """The kinds a value may be of; none first, since as a word it would also be a string."""
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return tuple(sorted(kinds, key=lambda kind: kind is not type(None)))


def _fitted(value: Any, hint: Any) -> Any:
    origin = get_origin(hint)
    if hint is type(None) and (value is None or value in ("none", "null", "")):
        return None
    if origin is Literal and isinstance(value, str) and value in get_args(hint):
        return value
    if origin is tuple:
        return _fitted_tuple(value, get_args(hint))
    if hint is Epochs and isinstance(value, str):
        return Epochs(f"{number_of(value):g}ep")
    if isinstance(value, str) and hint is not str:
        value = _read_word(value)
    if hint is float and isinstance(value, int | float) and type(value) is not bool:
        if not math.isfinite(value):
            raise ValueError
        return float(value)
    if hint is int and type(value) is float and value.is_integer():
        return int(value)
    if type(value) is hint:
        return value
    raise TypeError


def _read_word(word: str) -> Any:
    """YAML 1.1 takes `1e-4` and `1_000` for words; people mean numbers."""
    try:
        return float(word) if any(c in word for c in ".eE") and word.lower() not in ("true", "false") else int(word)
    except ValueError:
        return {"true": True, "false": False}.get(word.lower(), word)


def _fitted_tuple(value: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    if isinstance(value, str):
        value = value.strip("[]() ").replace(",", " ").split()
    if isinstance(value, int | float):
        value = [value]
    if not isinstance(value, list | tuple) or (kinds[-1] is not Ellipsis and len(value) != len(kinds)):
        raise TypeError
    return tuple(_fitted(part, kinds[0]) for part in value)


def describe(hint: Any) -> str:
    """A type, for messages."""
    origin, args = get_origin(hint), list(get_args(hint))
    if origin in (Union, types.UnionType):
        return " or ".join(describe(a) for a in args)
    if origin is Literal:
        return "one of " + ", ".join(map(str, args)) if len(args) > 1 else str(args[0])
    if origin is tuple:
        each = describe(args[0]).removeprefix("a ")
        return f"a list of {each}s" if args[-1] is Ellipsis else f"{len(args)} {each}s"
    return TYPES_IN_WORDS[hint]


def _near_word(value: Any, hint: Any) -> str:
    words = [w for option in _options(hint) if get_origin(option) is Literal for w in get_args(option)]
    return nearest(value if isinstance(value, str) else _shown(value), words)


def nearest(word: str, choices: Any) -> str:
    """The end of a sentence: '. Did you mean …?' or a full stop."""
    leaves = {k.rpartition(".")[2]: k for k in map(str, choices)}
    close = difflib.get_close_matches(word, [*map(str, choices)], 1, 0.6)
    close = close or [leaves[leaf] for leaf in difflib.get_close_matches(word.rpartition(".")[2], leaves, 1, 0.6)]
    return f". Did you mean {close[0]!r}?" if close else "."


def _shown(value: Any) -> str:
    """Short, and short on the way there: a few anchors in YAML make a value with billions of parts."""
    brief = reprlib.Repr()
    brief.maxstring = brief.maxother = brief.maxlong = 60
    text = brief.repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def flatten(tree: Mapping[str, Any]) -> dict[str, Any]:
    """{"train": {"steps": 1}} -> {"train.steps": 1}."""
    sections, settings = {f.name for f in fields(Config)}, dict[str, Any]()
    for name, value in tree.items():
        if name in sections and isinstance(value, Mapping):
            settings |= {f"{name}.{key}": v for key, v in value.items()}
        elif name not in sections or value is not None:  # a section whose lines are all comments is None
            settings[str(name)] = value
    return settings


class _UniqueKeys(yaml.SafeLoader):
    """Safe YAML in which a key that stands twice is an error, not a silent overwrite."""


def _construct_unique(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = set()
    for each, _ in node.value:
        key = loader.construct_object(each, deep=True)
        if isinstance(key, Hashable):  # others are refused below
            if key in keys:
                raise yaml.MarkedYAMLError(problem=f"the key {key!r} stands twice", problem_mark=node.start_mark)
            keys.add(key)
    return yaml.SafeLoader.construct_mapping(loader, node, deep=True)


_UniqueKeys.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_unique)


def read_yaml(file: Path) -> Mapping[str, Any]:
    """A config file as plain data; nothing in it is executed."""
    try:
        content = read_anything(file, LARGEST_FILE + 1)  # /dev/zero has no size and no end
    except OSError as error:
        raise UsageError(f"The config {file} cannot be read: {error.strerror}.") from error
    if len(content) > LARGEST_FILE:
        raise UsageError(f"{file} has more than {LARGEST_FILE:,} bytes, which no config has.")
    try:
        tree = _UniqueKeys(content.decode("utf-8-sig")).get_single_data()
    except Exception as error:  # by phase: PyYAML fails at `!!bool 7` with a KeyError, at others with nearly anything
        detail = str(error).replace("\n", " ")[:300]
        raise UsageError(f"{file} is not valid YAML: {detail}") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise UsageError(f"{file} holds a {type(tree).__name__}, but a config is sections of settings (train: …).")
    return tree


def to_dict(config: Config) -> dict[str, dict[str, Any]]:
    """Plain data, with lists for tuples, ready for YAML or JSON."""
    return {
        section: {name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()}
        for section, settings in asdict(config).items()
    }


def to_yaml(config: Config) -> str:
    return yaml.safe_dump(to_dict(config), sort_keys=False)


def difference(old: Config, new: Config) -> dict[str, tuple[Any, Any]]:
    """Dotted keys whose values differ."""
    before, after = flatten(to_dict(old)), flatten(to_dict(new))
    return {key: (before[key], after[key]) for key in before if before[key] != after[key]}
