"""Weights divided among the processes: the same updates, a part of the memory, checkpoints that any number can load."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from launch import Launch, be_patient, die
from ranks import SIZE, at, build_with, digest, keep, kept, launch, taken
from tiny import Quiet, fingerprints, parts_of, tiny
from torch import Tensor

from safelight import opened, runner
from safelight import start as start_module
from safelight.checkpoints.coordinator import SaveCoordinator
from safelight.checkpoints.folder import steps
from safelight.checkpoints.loading import load_rows_newest
from safelight.checkpoints.reader import load
from safelight.checkpoints.writer import PartWriter, Writer, write
from safelight.cli import main
from safelight.config.check import check
from safelight.errors import UsageError
from safelight.generate import generate
from safelight.processes.group import ProcessGroup, join_group
from safelight.processes.shared_rows import share_rows
from safelight.processes.slices import rows_each
from safelight.record.history import open_history
from safelight.training import fixed_set as probe
from safelight.training.build import Setup
from safelight.training.previews import preview_request
from safelight.vocabulary import GRADIENT_NOISE

DIVIDED = SIZE | {"train__weights": "divided", "model__widths": "16,24", "data__image_size": 8}
VARIANTS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {  # settings, and the numbers of processes beside one
    "plain": ({}, (2, 3, 4)),
    "micro-batches, recomputed": ({"train__accumulate": 2, "model__gradient_checkpointing": True}, (3,)),
    "half precision, labels": ({"train__precision": "bf16", "model__conditional": True}, (2,)),
}
CASES = [(name, count) for name, (_, counts) in VARIANTS.items() for count in counts]


@pytest.fixture(scope="module", autouse=True)
def warm() -> Iterator[None]:
    """All that is imported late is imported before the fork, once and not by every process."""
    importlib.import_module("accelerate")
    importlib.import_module("safelight.processes.sharding")
    importlib.import_module("sklearn.cluster")
    taken(parts_of(), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe, "SIZE", 16)
        patch.setattr(Writer, "busy", property(lambda self: bool(self.wait())))  # no save is skipped on a slow disk
        patch.setattr(runner, "_write_report", lambda *_: None)
        be_patient(patch)
        yield


def gathered(parts: Setup) -> dict[str, dict[str, Tensor]]:
    """All that a checkpoint holds, whole, on every process; in one exchange of rows and one of all else."""
    snapshot, group = parts.state.snapshot(), parts.runtime.group
    names = group.broadcast(
        lambda: {stem: {n: list(v.shape) for n, v in g.items()} for stem, g in snapshot.tensors.items()}
    )
    everything = [(stem, name, shape) for stem, group in names.items() for name, shape in sorted(group.items())]
    found: dict[str, dict[str, Tensor]] = {stem: {} for stem in names}
    rows: list[tuple[str, str, tuple[int, ...]]] = []
    mine: list[Tensor] = []
    for stem, name, shape in everything:
        whole = None if snapshot.shard is None else snapshot.shard.whole_shape(stem, name)
        value = snapshot.tensors[stem].get(name)  # the optimizer of a process has nothing for no rows
        if whole is None:
            if value is not None and shape:
                found[stem][name] = group.broadcast_tensor(value)
            continue
        padded = torch.zeros(rows_each(whole[0], group.size), *whole[1:])
        if value is not None:
            padded[: len(value)] = value
        mine.append(padded.flatten())
        rows.append((stem, name, whole))
    if mine:
        parts_of_all = group.all_gather(torch.cat(mine)).split([len(each) for each in mine], 1)
        for (stem, name, whole), each in zip(rows, parts_of_all, strict=True):
            found[stem][name] = each.reshape(-1, *whole[1:])[: whole[0]]
    counts = group.broadcast(
        lambda: [float(snapshot.tensors[stem][name]) for stem, name, shape in everything if not shape]
    )
    for (stem, name, _), count in zip((each for each in everything if not each[2]), counts, strict=True):
        found[stem][name] = torch.tensor(count)
    return found


def digests(tensors: dict[str, dict[str, Tensor]]) -> dict[str, str]:
    return {stem: digest([group[name] for name in sorted(group)]) for stem, group in tensors.items()}


def held_bytes(parts: Setup) -> int:
    """Of weights, moments and averages."""
    state = parts.state
    tensors = [*state.weights.tensors().values(), *(t for track in state.ema.shadows.values() for t in track)]
    tensors += [value for moments in state.optimizer.state.values() for value in moments.values()]
    return sum(tensor.nbytes for tensor in tensors)


# --- the same updates ---------------------------------------------------------------------------------------------


def look(group: ProcessGroup, settings: dict[str, Any]) -> dict[str, Any]:
    """What a few updates did, told by sums over whole tensors."""
    parts = build_with(group, **DIVIDED | settings)
    views = [parts.stepper.step(parts.loader.load(step), step) for step in range(2)]
    whole = gathered(parts)
    told: dict[str, Any] = {stem: [float(v.double().norm()) for v in whole[stem].values()] for stem in ("model", "ema")}
    told["norm"] = [float(view.norm) for view in views]
    told["readings"] = {
        name: number
        for piece in views[0].readings
        for name, number in piece.finish(*(t.numpy() for t in piece.tensors)).items()
        if name.startswith(("update", "weight", "gradient", "average"))
    }
    before = digests(gathered(parts))
    told["probe"] = [float(each.mean()) for each in parts.fixed_set.losses(parts.state, group)]
    request = preview_request(parts.config, 5)
    with parts.state.weights.swapped_in(parts.state.ema.tensors()) as weights:

        def draw(start: int, stop: int) -> Tensor:
            return generate(parts.state.model, parts.config, request, weights=weights, rows=(start, stop))

        told["samples"] = share_rows(group, 5, draw, in_step=group.size > 1).flatten()[::7].tolist()
    told["same"] = digests(gathered(parts)) == before  # neither probe nor samples have touched anything
    told["bytes"] = held_bytes(parts)
    return told


def averaging(group: ProcessGroup) -> list[float]:
    """The negative control: FSDP as it comes, which takes the mean over the processes."""
    parts = build_with(group, **DIVIDED)
    for module in parts.state.model.modules():
        if hasattr(module, "set_gradient_divide_factor"):
            module.set_gradient_divide_factor(float(group.size))
    return [float(parts.stepper.step(parts.loader.load(step), step).norm) for step in range(2)]


@pytest.fixture(scope="module")
def updates(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Any]]]:
    """By the number of processes, what each of them has after a few updates."""
    found = {}
    for count in (1, 2, 3, 4):
        folder = tmp_path_factory.mktemp(f"divided-{count}")

        def act(rank: int, folder: Path = folder) -> None:
            with join_group(tiny().train) as group:
                told: dict[str, Any] = {}
                for name, (settings, counts) in VARIANTS.items():
                    if group.size in (1, *counts):
                        told[name] = look(group, settings)
                if group.size == 3:
                    told["averaging"] = averaging(group)
                    told["refused"] = refusing(group)
                keep(folder, rank, **told)

        launch(count, folder, act)
        found[count] = kept(folder, count)
    return found


@pytest.mark.parametrize(("variant", "count"), CASES)
def test_divided_weights_make_the_updates_of_one_process(
    variant: str, count: int, updates: dict[int, list[dict[str, Any]]]
) -> None:
    one, others = updates[1][0][variant], [each[variant] for each in updates[count]]
    rounding = {"rel": 2e-2, "abs": 2e-3} if "half" in variant else {"rel": 1e-4, "abs": 1e-6}
    for each in others:
        assert each["same"]
        assert each["readings"].keys() == one["readings"].keys() - {GRADIENT_NOISE.name}
        for name in ("model", "ema", "norm", "probe"):
            assert each[name] == pytest.approx(one[name], **rounding)
        assert each["readings"] == pytest.approx({k: one["readings"][k] for k in each["readings"]}, **rounding)
        assert each["samples"] == pytest.approx(one["samples"], rel=1e-2, abs=5e-2 if "half" in variant else 1e-3)
    assert all(each["norm"] == others[0]["norm"] and each["probe"] == others[0]["probe"] for each in others)


def test_averaged_gradients_would_be_noticed(updates: dict[int, list[dict[str, Any]]]) -> None:
    right, wrong = updates[3][0]["plain"]["norm"], updates[3][0]["averaging"]
    assert right[0] / wrong[0] == pytest.approx(3, rel=1e-3)


def test_each_process_holds_its_part(updates: dict[int, list[dict[str, Any]]]) -> None:
    whole = updates[1][0]["plain"]["bytes"]
    for count in (2, 3, 4):
        parts = [each["plain"]["bytes"] for each in updates[count]]
        assert whole <= sum(parts) < whole * 1.02  # counters of the optimizer are on every one
        assert max(parts) < whole / count * 1.1


# --- non-finite values --------------------------------------------------------------------------------------------


def trained_digests(parts: Setup) -> list[str]:
    """Of all that an update changes; an average moves on."""
    found = digests(gathered(parts))
    return [found["model"], found["optimizer"]]


def refusing(group: ProcessGroup) -> list[Any]:
    parts = build_with(group, **DIVIDED)
    taken(parts)
    before = trained_digests(parts)
    if group.rank == 1:  # the loss of a row of its own
        parts.stepper.objective.signal_scale = parts.stepper.objective.signal_scale * torch.nan
    view = parts.stepper.step(parts.loader.load(2), 2)
    return [float(view.refused), trained_digests(parts) == before, int((~view.norms.isfinite()).sum())]


def test_non_finite_value_of_one_process_is_refused_on_all(updates: dict[int, list[dict[str, Any]]]) -> None:
    told = [each["refused"] for each in updates[3]]
    assert all(each == told[0] for each in told)
    assert told[0][:2] == [1, True]
    assert told[0][2] > 0  # every process knows the norms of all parameters


# --- checkpoints --------------------------------------------------------------------------------------------------


def save(parts: Setup, folder: Path) -> None:
    group = parts.runtime.group
    coordinator = SaveCoordinator(group, "checkpoints")
    writer = PartWriter(folder, coordinator)
    if group.is_main:
        writer = Writer(folder, last=2, every=0, say=print, coordinator=coordinator)
    writer.submit(parts.state.snapshot(), None)
    writer.wait()
    assert writer.last_saved == parts.state.counters.step


def test_checkpoint_is_loaded_by_any_number_of_processes(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("two", "whole", "three", "back")}
    for folder in folders.values():
        folder.mkdir()

    def write_two(rank: int) -> None:
        with join_group(tiny().train) as group:
            parts = build_with(group, **DIVIDED)
            taken(parts)
            parts.state.counters.step = 2
            keep(folders["two"], rank, saved=digests(gathered(parts)))
            save(parts, folders["two"])

    def read(rank: int, source: str, target: str) -> None:
        with join_group(tiny().train) as group:
            parts = build_with(group, **DIVIDED)
            shard = parts.state.weights.shard
            assert shard is not None
            loaded = load_rows_newest(group, folders[source], shard, print)
            assert loaded is not None
            parts.state.restore(loaded)
            keep(folders[target], rank, loaded=digests(gathered(parts)))
            save(parts, folders[target])

    launch(2, folders["two"], write_two)
    saved = kept(folders["two"], 2)[0]["saved"]
    path = folders["two"] / "step_00000002"
    assert {file.name for file in path.glob("model*")} == {f"model.{i}-of-2.safetensors" for i in range(2)}
    assert digests(load(path).tensors) == saved

    launch(3, folders["three"], lambda rank: read(rank, "two", "three"))
    assert all(each["loaded"] == saved for each in kept(folders["three"], 3))
    assert digests(load(folders["three"] / "step_00000002").tensors) == saved

    parts = parts_of(**DIVIDED | {"train__weights": "whole"})
    parts.state.restore(load(path))
    write(folders["whole"], parts.state.snapshot())
    assert (folders["whole"] / "step_00000002" / "model.safetensors").is_file()
    launch(2, folders["back"], lambda rank: read(rank, "whole", "back"))
    assert kept(folders["back"], 2)[0]["loaded"] == saved
    ours, theirs = (
        {f.name: f.read_bytes() for f in (folders[n] / path.name).glob("*.safetensors")} for n in ("two", "back")
    )
    assert ours == theirs


# --- whole runs ---------------------------------------------------------------------------------------------------

RUN = DIVIDED | {"sample__every": 8, "evaluate__every": 6, "evaluate__samples": 8, "evaluate__references": 32,
                 "evaluate__components": 2, "data__held_out": 0.1}  # fmt: skip


def start(count: int, run: Path, happening: Any = None, *, resume: bool = False, **settings: Any) -> Launch:
    def act(rank: int) -> None:
        if happening is not None:
            happening(rank)
        quiet = Quiet()
        try:
            if resume:
                start_module.resume(
                    run, terminal=quiet, settings={k.replace("__", "."): v for k, v in settings.items()}
                )
            else:
                start_module.train(tiny(**RUN | settings), run=run, terminal=quiet)
        finally:
            print("\n".join(quiet.said), flush=True)

    return Launch(count, act, run.with_name(f"{run.name}-said"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("divided") / "run"
    started = start(3, run)
    assert started.codes() == [0, 0, 0], started.said(0) + started.said(1)
    said = started.said(0)
    assert said.count("Weights are divided among the processes") == 1
    assert "could not be made" not in said
    assert "Best: step" in said
    return run


def test_killed_process_ends_all_and_a_restart_ends_with_the_same_bytes(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = start(3, run, at(7, 1, die))
    assert first.codes() == [75, -9, 75]
    assert "".join(first.said(rank) for rank in range(3)).count("Error: Process 1 is gone") == 1
    assert max(steps(run / "checkpoints")) in (4, 6)  # whatever was saved last: this process has but a part of the rest
    again = start(3, run, resume=True)
    assert again.codes() == [0, 0, 0], again.said(0)
    assert fingerprints(run) == fingerprints(whole)
    with open_history(run / "record.sqlite") as ours, open_history(whole / "record.sqlite") as theirs:
        assert [p.step for p in ours.pictures("samples")] == [p.step for p in theirs.pictures("samples")] == [6, 8, 12]


def test_other_numbers_of_processes_carry_a_divided_run_on(whole: Path, tmp_path: Path) -> None:
    """From the checkpoint in the middle: by two that divide the weights, and by one that holds them whole."""
    final = load(whole / "checkpoints" / "step_00000012").tensors
    for count in (2, 1):
        run = tmp_path / f"by-{count}"
        shutil.copytree(whole, run)
        shutil.rmtree(run / "checkpoints" / "step_00000012")
        assert max(steps(run / "checkpoints")) == 8
        started = start(count, run, resume=True, evaluate__every=0, sample__every=100)
        assert started.codes() == [0] * count, started.said(0)
        assert "Resumed from" in started.said(0)
        ours = load(run / "checkpoints" / "step_00000012").tensors
        for stem in ("model", "ema", "optimizer", "profiles"):
            assert ours[stem].keys() == final[stem].keys()
            for name, value in final[stem].items():
                torch.testing.assert_close(ours[stem][name], value, rtol=1e-3, atol=1e-5)


def test_divided_run_is_used_like_any_other(whole: Path, tmp_path: Path) -> None:
    averaged, rebuilt = (opened.load_model(whole, ema_width=width).model for width in (None, 0.07))
    weights = load(whole / "checkpoints" / "step_00000012").tensors["ema"]
    assert all(torch.equal(parameter, weights[name]) for name, parameter in averaged.named_parameters())
    assert all(bool(parameter.isfinite().all()) for parameter in rebuilt.parameters())
    assert main(["export", str(whole), "-o", str(tmp_path / "pipeline")]) == 0
    assert main(["sample", str(whole), "-n", "2", "-o", str(tmp_path / "samples.png")]) == 0
    assert main(["report", str(whole), "-o", str(tmp_path / "report.html")]) == 0


DAMAGES: dict[str, Callable[[Path, Path], object]] = {
    "missing": lambda file, _: file.unlink(),
    "cut": lambda file, _: os.truncate(file, file.stat().st_size - 1),
    "flipped": lambda file, _: file.write_bytes(bytes([*file.read_bytes()[:-1], file.read_bytes()[-1] ^ 1])),
    "of another step": lambda file, older: shutil.copyfile(older, file),
}


def test_damage_that_one_process_finds_is_refused_by_all(whole: Path, tmp_path: Path) -> None:
    """The file of the last process: the others need nothing of it, and go back with it all the same."""
    older = whole / "checkpoints" / "step_00000008"
    for number, damage in enumerate(DAMAGES.values()):
        folder = tmp_path / str(number) / "checkpoints"
        shutil.copytree(whole / "checkpoints", folder)
        damage(folder / "step_00000012" / "ema.2-of-3.safetensors", older / "ema.2-of-3.safetensors")

    def act(rank: int) -> None:
        with join_group(tiny().train) as group:
            parts, said = build_with(group, **RUN), list[str]()
            shard = parts.state.weights.shard
            assert shard is not None
            found = [
                load_rows_newest(group, tmp_path / str(n) / "checkpoints", shard, said.append)
                for n in range(len(DAMAGES))
            ]
            keep(tmp_path, rank, steps=[each.step for each in found if each is not None], said=said)

    launch(3, tmp_path, act)
    for told in kept(tmp_path, 3):
        assert told["steps"] == [8] * len(DAMAGES)
    said = kept(tmp_path, 3)[0]["said"]
    for text, words in zip(said, ("is missing", "It was cut or changed", "is damaged", "is damaged"), strict=True):
        assert words in text
        assert "It was set aside as .corrupt-" in text


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"train__shards": 12},
        {"train__accumulate": "auto"},
        {"heal__enabled": True},
        {"model__spectral_norm": True},
        {"model__compile": True},
        {"model__channels_last": True},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_what_cannot_go_with_divided_weights_is_refused_in_words(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="weights cannot be divided"):
        check(tiny(**DIVIDED | settings))
    check(tiny(**DIVIDED))
