"""How a run is made again: its commands, its settings against the preset, the state of its code, its versions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safelight.config.presets import PRESETS
from safelight.config.resolve import flatten, resolve, to_dict
from safelight.errors import SafelightError
from safelight.pages.data.numbers import as_dict, as_list, as_str, trimmed
from safelight.pages.data.run_files import plain_file_inside, read_bytes
from safelight.run import RunFolder

MAX_YAML_BYTES, MAX_COMMANDS, MAX_COMMAND = 64_000, 20, 4000
COMMIT = re.compile(r"[0-9a-f]{40,64}")
# What the data or the machine decides, or where things lie: no choice that differs from a preset.
FOUND_OUT = ("data.channels", "data.classes", "data.cache", "data.workers", "data.scan_workers", "train.threads")


def reproduce(run: RunFolder, facts: Mapping[str, Any], config: dict[str, Any] | None, name: str) -> dict[str, Any]:
    """`facts`: of run.json; `config`: all settings by their dotted keys, None for a watched loop; `name`: of the folder
    in commands. Any of it may be unknown: a run of before it was written down."""
    source = as_dict(facts.get("origin"))
    commands = [as_str(each, MAX_COMMAND) for each in as_list(facts.get("commands"), MAX_COMMANDS)]
    preset, differs = nearest_preset(config) if config else (None, {})
    return {
        "commands": [each for each in commands if each],
        "script": _script(source.get("script")),
        "code": _commit(source.get("code")),
        "versions": trimmed(as_dict(source.get("packages")) | as_dict(facts.get("versions"))),
        "fingerprint": as_str(as_dict(facts.get("data")).get("fingerprint"), 64),
        "seed": None if config is None else config.get("train.seed"),
        "preset": preset,
        "differs": trimmed({key: list(values) for key, values in differs.items()}),
        "again": shlex.join(["safelight", "train", "--config", f"{name}/{run.config.name}"]) if config else None,
        "yaml": _yaml(run),
    }


def nearest_preset(config: dict[str, Any]) -> tuple[str | None, dict[str, tuple[Any, Any]]]:
    """(the preset with the fewest other settings, {key: (there, here)})."""
    best: tuple[str | None, dict[str, tuple[Any, Any]]] = None, {}
    for name in PRESETS:
        try:
            there = flatten(to_dict(resolve(preset=name)))
        except SafelightError:
            continue
        differs = {
            key: (there.get(key), value)
            for key, value in config.items()
            if key not in FOUND_OUT and _plain(there.get(key)) != _plain(value)
        }
        if best[0] is None or len(differs) < len(best[1]):
            best = name, differs
    return best


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _script(found: Any) -> dict[str, Any] | None:
    script = as_dict(found)
    name = as_str(script.get("name"), 200)
    return None if name is None else {"name": Path(name).name, **(_commit(script) or {"commit": None, "changed": None})}


def _commit(found: Any) -> dict[str, Any] | None:
    facts = as_dict(found)
    commit, changed = as_str(facts.get("commit"), 64), facts.get("changed")
    if commit is None or not COMMIT.fullmatch(commit):
        return None
    return {"commit": commit, "changed": changed if isinstance(changed, bool) else None}


def _yaml(run: RunFolder) -> str | None:
    path = plain_file_inside(run.path, run.config.name)
    content = None if path is None else read_bytes(path, MAX_YAML_BYTES)
    return None if content is None else content.decode("utf-8", "replace")
