"""Checkpoints of any PyTorch loop: the same files, the same order of writing and the same proof as the trainer's."""

from __future__ import annotations

import contextlib
import math
import random
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from safelight.checkpoints import folder as retention
from safelight.checkpoints import manifest, state_tree
from safelight.checkpoints.compatibility import check_tensors, environment_changes
from safelight.checkpoints.loading import load_once
from safelight.checkpoints.reader import load, load_newest
from safelight.checkpoints.snapshot import Groups, Loaded, Snapshot, environment
from safelight.checkpoints.writer import write
from safelight.errors import CheckpointError, RunBusy, UsageError
from safelight.files import DISK, Disk, RunLock, make_directories
from safelight.monitors.parameters import unwrapped
from safelight.probes.random_state import random_states, restore_random_states
from safelight.processes.group import ProcessGroup
from safelight.words import print_to_stderr, with_article

RESERVED = ("state", "manifest")
_UNFIT = (ValueError, TypeError, KeyError, IndexError, AttributeError, RuntimeError, UsageError)


class Checkpoints:
    """Saves and loads whatever has a `state_dict`: whole or not at all, durable when `save` returns, every file with
    its sha256, no pickle. `load` takes the newest one that is as it was written."""

    def __init__(
        self,
        folder: str | Path,
        *,
        keep: int = 3,
        keep_every: int = 0,
        say: Callable[[str], None] = print_to_stderr,
        disk: Disk | None = None,
    ) -> None:
        """`keep`: the newest so many, and the best one. `keep_every`: also steps that are multiples of this."""
        if keep < 1 or keep_every < 0:
            raise UsageError(f"keep is {keep} and keep_every {keep_every}; keep at least 1, and every 0 or more steps.")
        self.folder, self.extra = Path(folder), dict[str, Any]()
        self._keep, self._keep_every, self._say = keep, keep_every, say
        self._disk = Disk(self.folder) if disk is None else disk
        self._scores: dict[int, float] = {}
        self._scores_known = False
        self._went_back = False
        self._is_locked = False

    def __repr__(self) -> str:
        return f"Checkpoints({str(self.folder)!r}, steps={self.steps})"

    @property
    def steps(self) -> list[int]:
        """Those that have a checkpoint, oldest first."""
        return retention.steps(self.folder)

    @property
    def best(self) -> int | None:
        """The step with the lowest score, among those that are there."""
        if not self._scores_known:
            self._scores |= {step: score for step in self.steps if (score := self._read_score(step)) is not None}
            self._scores_known = True
        there = {step: score for step, score in self._scores.items() if step in self.steps}
        return min(there, key=lambda step: (there[step], step), default=None)

    def save(
        self,
        step: int,
        *,
        rng: bool = True,
        extra: Mapping[str, Any] | None = None,
        score: float | Tensor | None = None,
        **parts: Any,
    ) -> Path | None:
        """The path, once all of it is durable and was read back. `parts`: anything with a state_dict, torch.Generator,
        numpy's and Python's generators. `rng`: the global random states too. `extra`: JSON of your own. `score`: the
        lower the better. Of several processes the first saves, and the others get None."""
        if dist.is_available() and dist.is_initialized() and dist.get_rank() != 0:
            return None
        if not parts or set(parts) & set(RESERVED):
            raise UsageError(
                f"Give what is to be saved by name, such as model=model, and not as {' or '.join(RESERVED)}."
            )
        self._prepare_folder(step)
        tensors, trees = Groups(), dict[str, Any]()
        for name, part in parts.items():
            trees[name], tensors[name] = state_tree.split(_state_of(name, part), name)
        number = math.nan if score is None else float(score.detach() if isinstance(score, Tensor) else score)
        kept = number if math.isfinite(number) else None
        state = {"parts": trees, "rng": random_states() if rng else None, "extra": dict(extra or {}), "score": kept}
        path = write(
            self.folder,
            Snapshot(step, {name: group for name, group in tensors.items() if group}, state, environment()),
            disk=self._disk,
        )
        self._scores.pop(step, None)
        if kept is not None:
            self._scores[step] = kept
        self._remove_old(step)
        return path

    def _prepare_folder(self, step: int) -> None:
        make_directories(self.folder, DISK if self._disk.root == self.folder else self._disk)
        if not self._is_locked:
            self._lock()
            retention.clean(self.folder, disk=self._disk)
        later = [each for each in self.steps if each > step]
        if later and not self._went_back:
            raise UsageError(
                f"{self.folder} has checkpoints up to step {later[-1]}, and step {step} is to be saved: it would make "
                "them the future of another training. Continue from there (start = saves.load(...)), go back on "
                "purpose (saves.load(step=...)), or choose another folder."
            )

    def _lock(self) -> None:
        """As long as this object lives: two trainings in one folder would delete each other's checkpoints."""
        lock = RunLock(self.folder)
        try:
            lock.__enter__()
        except RunBusy as busy:
            who = str(busy).partition(" is in use by ")[2].partition(". ")[0]
            raise RunBusy(
                f"{self.folder} is in use by {who}. Wait until it ends, stop it, or choose another folder."
            ) from None
        self._is_locked = True
        weakref.finalize(self, lock.__exit__)

    def _remove_old(self, step: int) -> None:
        try:
            removed = retention.retain(
                self.folder, last=self._keep, every=self._keep_every, best=self.best, now=step, disk=self._disk
            )
        except OSError as error:  # the new one is safe
            self._say(f"Old checkpoints in {self.folder} could not be removed: {error}.")
            return
        self._went_back = False
        if future := [old for old in removed if old > step]:
            self._say(f"Removed checkpoints {future}: training went back to before step {step}.")

    def load(self, *, step: int | None = None, best: bool = False, rng: bool = True, **parts: Any) -> int | None:
        """Puts the newest whole checkpoint, or that of `step`, or the `best` one, into the parts given; its step, or
        None if there is none yet. A damaged one is set aside with a message. `extra` has what was saved with it."""
        if best:
            step = self.best
            if step is None:
                raise UsageError(f"No checkpoint in {self.folder} was saved with a score: there is no best one.")
        group = ProcessGroup(dist.get_rank(), dist.get_world_size()) if _has_peers() else ProcessGroup()
        loaded = load_once(group, lambda: self._read(step))
        if loaded is None:
            return None
        _check_parts(loaded, parts)
        states = {name: _join(loaded, name) for name in parts}
        for name in sorted(parts, key=lambda name: isinstance(parts[name], nn.Module)):  # checked already: they fit
            _restore(parts[name], states[name], f"{loaded.path}: {name}")
        if rng:
            self._restore_random(loaded, group)
        if changes := environment_changes(loaded):
            self._say(f"Another environment than at the checkpoint ({'; '.join(changes)}): the bytes may differ.")
        self.extra, self._went_back = loaded.state.get("extra", {}), step is not None
        return loaded.step

    def _read(self, step: int | None) -> Loaded | None:
        if step is None:
            return load_newest(self.folder, self._say, disk=self._disk)
        if step not in self.steps:
            raise UsageError(f"{self.folder} has no checkpoint of step {step}; it has {self.steps}.")
        return load(retention.place(self.folder, step), disk=self._disk)

    def _restore_random(self, loaded: Loaded, group: ProcessGroup) -> None:
        states = loaded.state.get("rng")
        if states is None or not group.is_main:
            return
        try:
            missing = restore_random_states(states)
        except (*_UNFIT, OverflowError) as error:
            raise CheckpointError(f"{loaded.path}: its random states cannot be used: {error}.") from error
        if group.size > 1:
            missing.append(f"those of {group.size - 1} other processes, which were not saved")
        if missing:
            self._say(f"Not restored: {'; '.join(missing)}.")

    def _read_score(self, step: int) -> float | None:
        path = retention.place(self.folder, step)
        with contextlib.suppress(CheckpointError, KeyError):
            entries = {entry.name: entry for entry in manifest.entries(manifest.read(path, self._disk))}
            raw = manifest.read_file(path, entries[manifest.STATE], self._disk)
            score = manifest.parse_json(raw, path / manifest.STATE).get("score")
            return score if isinstance(score, float) and math.isfinite(score) else None
        return None


def _has_peers() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _state_of(name: str, part: Any) -> Any:
    if isinstance(part, nn.Module):
        return unwrapped(part).state_dict()
    if isinstance(part, torch.Generator):
        return {"state": part.get_state()}
    if isinstance(part, np.random.Generator):
        return {"state": part.bit_generator.state}
    if isinstance(part, random.Random):
        return {"state": part.getstate()}
    if callable(getattr(part, "state_dict", None)):
        return part.state_dict()
    if isinstance(part, Mapping) and all(isinstance(value, Tensor) for value in part.values()):
        raise UsageError(f"{name} is a dict of tensors. Pass what it is the state of: {name}=…, not its state_dict().")
    raise UsageError(
        f"{name} is {with_article(type(part).__name__)}, which has no state_dict(). Numbers, text and lists go into "
        f"extra={{...}}; anything else needs state_dict() and load_state_dict()."
    )


def _check_parts(loaded: Loaded, parts: Mapping[str, Any]) -> None:
    """Before anything is touched: half a restore is worse than none."""
    saved = loaded.state.get("parts")
    if not isinstance(saved, dict):
        raise CheckpointError(f"{loaded.path} is not one of safelight.Checkpoints. `safelight.open` opens runs.")
    if unknown := sorted(set(parts) - set(saved)):
        raise CheckpointError(
            f"{loaded.path} has no {' and no '.join(unknown)}; it has {', '.join(sorted(saved))}. Ask for those only."
        )
    for name, part in parts.items():
        if isinstance(part, nn.Module):
            state = unwrapped(part).state_dict()
            if state and all(isinstance(value, Tensor) for value in state.values()):
                check_tensors(name, state, loaded, "Load it into a model of the same kind and size.")


def _join(loaded: Loaded, name: str) -> Any:
    return state_tree.join(loaded.state["parts"][name], loaded.tensors.get(name, {}), f"{loaded.path}: {name}")


def _restore(part: Any, state: Any, where: str) -> None:
    try:
        if isinstance(part, torch.Generator):
            part.set_state(state["state"])
        elif isinstance(part, np.random.Generator):
            part.bit_generator.state = state["state"]
        elif isinstance(part, random.Random):
            part.setstate(state["state"])
        else:
            (unwrapped(part) if isinstance(part, nn.Module) else part).load_state_dict(state)
    except _UNFIT as error:
        raise CheckpointError(f"{where} does not fit what it is loaded into: {error}") from error
