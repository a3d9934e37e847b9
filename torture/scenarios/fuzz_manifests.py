"""Malformed manifests, and forged checkpoints whose every sha256 is right."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

from safelight.checkpoints import manifest, tensorfile
from safelight.checkpoints.reader import load
from safelight.checkpoints.writer import write
from safelight.config.resolve import resolve
from safelight.data.prepare import open_images
from safelight.training.build import build, infer_data_settings
from torture.child_run import FewLayers
from torture.fuzz_child import Reader, watch
from torture.moments import QUICK, moment
from torture.mutation import PICKLE, mutate, spell, spoil
from torture.scenario import Outcome, Scenario, Trial
from torture.tiny_run import CLOCK, configure, make_images, train_alone

STEP = 4


def make_manifest(draw: random.Random, sound: bytes) -> bytes:
    """As text, as plain data, or as a forger would: spoilt and sealed again."""
    body = json.loads(sound)
    kind = draw.random()
    if kind < 0.4:
        return mutate(sound, [sound, PICKLE, b"[" * 5000], draw)
    if kind < 0.5:
        return spell(spoil(body, draw), draw)
    del body["sha256"]
    spoilt = spoil(body, draw)
    try:
        return manifest.seal(spoilt) if isinstance(spoilt, dict) else spell(spoilt, draw)
    except ValueError:  # a number too long, or half of a pair of surrogates
        return spell(spoilt, draw)


def open_manifests(trial: Trial) -> Reader:
    path = write(trial.folder / f"child-{os.getpid()}", moment(STEP), disk=QUICK)  # the same bytes in every child
    sound = (path / manifest.NAME).read_bytes()

    def read(content: bytes) -> None:
        (path / manifest.NAME).write_bytes(content)
        manifest.check_sizes(path, manifest.entries(manifest.read(path)))

    read(sound)
    return Reader(functools.partial(make_manifest, sound=sound), read)


def _copy(trial: Trial, run: Path) -> Path:
    """A checkpoint of our own: after a crash the next child needs a sound one again."""
    path = trial.folder / f"child-{os.getpid()}" / f"step_{STEP:08d}"
    return shutil.copytree(run / "checkpoints" / path.name, path)


Files = dict[str, bytes]


def make_checkpoint(draw: random.Random, sound: Files) -> Files:
    """One or two files changed, and the manifest sealed over what they hold now."""
    changed = dict(sound)
    for name in draw.choices([*sound, manifest.STATE, manifest.STATE], k=draw.choice([1, 1, 2])):
        if name not in changed:
            continue
        if name == manifest.STATE:
            state = json.loads(sound[name])
            changed[name] = (
                spell(spoil(state, draw), draw) if draw.random() < 0.9 else mutate(sound[name], [PICKLE], draw)
            )
        elif draw.random() < 0.1:
            del changed[name]
        elif draw.random() < 0.2:
            changed[name] = draw.choice([sound[other] for other in sound if other != manifest.STATE])
        else:
            changed[name] = _spoil_tensors(changed[name], draw)
    return changed


def _spoil_tensors(content: bytes, draw: random.Random) -> bytes:
    """A sound file of other tensors: renamed, left out, of another shape or kind."""
    tensors = dict(tensorfile.parse(content, "sound"))
    for _ in range(draw.randint(1, 3)):
        name = draw.choice([*tensors])
        value, deed = tensors.pop(name), draw.randrange(6)
        if deed == 0:
            tensors[name + draw.choice(["x", "/step", "\0", "." * 200])] = value
        elif deed == 1:
            tensors[name] = value.reshape(-1)[: draw.randint(0, 3)].clone()
        elif deed == 2:
            tensors[name] = value.double() if value.is_floating_point() else value.float()
        elif deed == 3:
            tensors[name] = value[None].clone()
        elif deed == 4 and value.is_floating_point() and value.numel():
            tensors[name] = value.clone().fill_(draw.choice([float("nan"), float("inf"), 3e38, -1.0]))
        if not tensors:
            tensors[name] = value
    return b"".join(tensorfile.lay_out(tensors, "forged").chunks())


def open_checkpoints(trial: Trial, run: Path) -> Reader:
    """Everything that a resume does with a checkpoint, to the live objects."""
    path = _copy(trial, run)
    sound = {file.name: file.read_bytes() for file in sorted(path.iterdir()) if file.name != manifest.NAME}
    sound[manifest.STATE] = json.dumps(json.loads(sound[manifest.STATE]) | dict.fromkeys(CLOCK, 1)).encode()
    body = json.loads((path / manifest.NAME).read_bytes())
    config = resolve(file=run / "config.yaml")
    images = open_images(config.data)
    parts = build(infer_data_settings(config, images), images, lambda words: None, FewLayers())

    def read(files: Files) -> None:
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        entries: list[dict[str, Any]] = []
        for name, content in files.items():
            (path / name).write_bytes(content)
            entries.append({"name": name, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()})
        kept = {key: value for key, value in body.items() if key not in ("sha256", "files")}
        (path / manifest.NAME).write_bytes(manifest.seal(kept | {"files": entries}))
        loaded = load(path)
        parts.state.restore(loaded)
        parts.state.snapshot()

    read(sound)
    return Reader(functools.partial(make_checkpoint, sound=sound), read)


def fuzz_checkpoints(trial: Trial) -> Outcome:
    """On the checkpoint of a real run."""
    make_images(trial.folder / "images")
    run = trial.folder / "run"
    train_alone(run, configure(trial.folder / "images", train__steps=STEP))
    return watch(trial, functools.partial(open_checkpoints, run=run))


FUZZ_MANIFESTS = Scenario(
    "fuzz: manifests",
    "Malformed manifests of a checkpoint, half of them sealed again with the right sha256.",
    "inputs", 25_000, 25_000, 300, 12_500, lambda trial: watch(trial, open_manifests),
)  # fmt: skip
FUZZ_CHECKPOINTS = Scenario(
    "fuzz: checkpoints",
    "Forged checkpoints: other counters and journals in state.json, other tensors, every sha256 right; loaded and "
    "restored into the objects of a run.",
    "inputs", 4_000, 4_000, 100, 2_000, fuzz_checkpoints,
)  # fmt: skip
