"""Safelight from Python: the same verbs as on the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from safelight import opened, start
from safelight.checkpoints.folder import steps as checkpoint_steps
from safelight.config import Config
from safelight.config.aliases import advice_on
from safelight.config.effect import refuse_own_model
from safelight.config.presets import FLAGS, default_preset, fit_to_source, settings_of_objective
from safelight.config.resolve import nearest, resolve
from safelight.data import user_images
from safelight.errors import UsageError
from safelight.run import open_run
from safelight.terminal import Terminal
from safelight.trained import Run

OWN_STRIDE = 4  # the levels of the preset that images from Python are trained with halve them twice


def train(
    data: Any = None,
    *,
    run: str | Path | None = None,
    preset: str | None = None,
    config: Config | str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    model: nn.Module | None = None,
    force: bool = False,
    **flags: Any,
) -> Run:
    """Trains a new run: `safelight.train("photos/", steps=20_000)`.

    `data` is a name, a path, or images: a tensor, an array, a Dataset, a DataLoader, an iterable (docs/data.md).
    `flags` are those of `safelight train` (steps, batch_size, lr, …); `settings` are dotted, as in --set.
    `model` is any nn.Module of (x, t[, label]) to train instead of the U-Net.
    `force` moves aside what is in the folder `run`; without it, only a new or empty one is taken.
    """
    say = Terminal().say
    named = settings_of(flags) | dict(settings or {})
    if data is not None:
        named = _source(data, named, config, say) | named
    if isinstance(config, Config):
        resolved = resolve(base=config, preset=preset, settings=named, say=say)
    else:
        named = fit_to_source(preset, named, config, say) | named
        preset = preset or default_preset(named, config)
        resolved = resolve(preset=preset, file=None if config is None else Path(config), settings=named, say=say)
    if model is not None:
        refuse_own_model(named)
    return start.train(resolved, run=None if run is None else Path(run), model=model, force=force)


def resume(
    run: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    force: bool = False,
    undo: int | None = None,
    model: nn.Module | None = None,
    data: Any = None,
    **flags: Any,
) -> Run:
    """Continues a run. A model of your own has to be passed again: a run folder holds weights, never code. Images that
    were passed to `train` are found in the cache folder; `data` passes them again where that is gone."""
    chosen = settings_of(flags) | dict(settings or {})
    if data is not None:
        chosen |= {"data.source": _source(data, chosen, None, Terminal().say)["data.source"]}
    return start.resume(Path(run), settings=chosen, force=force, undo=undo, model=model)


def open(run: str | Path) -> Run:
    """A run on disk, at its newest checkpoint."""
    folder = open_run(Path(run))
    return Run(folder.path, opened.read_config(folder), max(checkpoint_steps(folder.checkpoints), default=0))


def _source(data: Any, settings: Mapping[str, Any], config: object, say: Callable[[str], None]) -> dict[str, Any]:
    """The settings that the argument `data` stands for; images that are no files are stored first."""
    if isinstance(data, str | Path):
        return {"data.source": str(data)}
    kept = user_images.keep(data, resolve(settings={k: v for k, v in settings.items() if k == "data.cache"}).data, say)
    found: dict[str, Any] = {"data.source": kept.source}
    if config is None and "data.image_size" not in settings and kept.side and kept.side % OWN_STRIDE == 0:
        found["data.image_size"] = kept.side
    return found


def settings_of(flags: Mapping[str, Any]) -> dict[str, Any]:
    """{"steps": 5} -> {"train.steps": 5}."""
    found: dict[str, Any] = dict(settings_of_objective(flags.get("objective")))
    for name, value in flags.items():
        if name == "objective":
            continue
        if name not in FLAGS:
            advice = advice_on(name)
            near = nearest(name, (*FLAGS, "objective")) if advice is None else f". {advice}"
            raise UsageError(f"There is no argument {name!r}{near} Other settings go into settings=.")
        found[FLAGS[name]] = value
    return found
