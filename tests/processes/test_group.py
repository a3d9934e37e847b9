"""One run on several processes: the same updates, one voice, and no process that is waited for in vain."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from launch import Launch, be_patient, die, hang, stop
from PIL import Image
from ranks import SIZE, at, build_with, digest, keep, kept, launch, taken
from tiny import Quiet, fingerprints, newest, parts_of, tiny
from torch.nn.parallel import DistributedDataParallel

import safelight
from safelight import runner
from safelight import start as start_module
from safelight.checkpoints.folder import steps
from safelight.errors import ProcessLost, UsageError
from safelight.observing import process_check as rollcall_module
from safelight.observing import speed as speed_module
from safelight.observing.process_check import ProcessCheck
from safelight.observing.speed import Speedometer
from safelight.processes import group as crew_module
from safelight.processes import heartbeat as pulse_module
from safelight.processes.group import ProcessGroup, join_group
from safelight.processes.heartbeat import Heartbeat
from safelight.processes.reduction import Reduction
from safelight.processes.shared_rows import share_rows
from safelight.record.reading import read_signal
from safelight.training import pictures as trainer_module
from safelight.training.batch_loader import BatchLoader
from safelight.training.build import Setup, check_divisible
from safelight.training.step import Stepper
from safelight.vocabulary import DRIFT, OVERLAP, SAME_NOISE

EXACT = SIZE | {"train__shards": 12}
HARD = {"train__shards": 12, "model__dropout": 0.3, "model__spectral_norm": True}
VARIANTS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {  # settings, and the numbers of processes beside one
    "plain": ({}, (2, 3, 4)),
    "micro-batches": ({"train__accumulate": 2}, (2,)),
    "exact": (HARD, (2, 3, 4)),
    "exact, other micro-batches": (HARD | {"train__accumulate": 2}, (2,)),
}
CASES = [(name, count) for name, (_, counts) in VARIANTS.items() for count in counts]


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """All that is imported late is imported before the fork, once and not by every process."""
    importlib.import_module("accelerate")
    taken(parts_of(), 1)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_write_report", lambda *_: None)  # two seconds that prove nothing here
    be_patient(monkeypatch)


# --- the same updates ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def updates(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Any]]]:
    """By the number of processes, what each of them has after a few updates."""
    found = {}
    for count in (1, 2, 3, 4):
        folder = tmp_path_factory.mktemp(f"updates-{count}")

        def act(rank: int, folder: Path = folder) -> None:
            with join_group(tiny().train) as group:
                told: dict[str, Any] = {}
                for name, (settings, counts) in VARIANTS.items():
                    if group.size not in (1, *counts):
                        continue
                    values = taken(build_with(group, **settings))
                    told[name] = [digest(values), [float(v.double().norm()) for v in values]]
                keep(folder, rank, **told)

        launch(count, folder, act)
        found[count] = kept(folder, count)
    return found


@pytest.mark.parametrize(("variant", "count"), CASES)
def test_every_number_of_processes_makes_the_same_updates(
    variant: str, count: int, updates: dict[int, list[dict[str, Any]]]
) -> None:
    (whole, norms), others = updates[1][0][variant], [each[variant] for each in updates[count]]
    assert len({digest for digest, _ in others}) == 1, "the processes of one run differ"
    assert others[0][1] == pytest.approx(norms, rel=1e-4, abs=1e-6)
    if "exact" in variant:
        assert others[0][0] == whole


def test_without_shards_the_bytes_differ(updates: dict[int, list[dict[str, Any]]]) -> None:
    """The negative control: the bytes are compared, and not equal for want of looking."""
    assert len({updates[count][0]["plain"][0] for count in updates}) == len(updates)


def test_number_of_micro_batches_changes_no_byte(updates: dict[int, list[dict[str, Any]]]) -> None:
    assert updates[1][0]["exact"][0] == updates[1][0]["exact, other micro-batches"][0]
    assert updates[1][0]["plain"][0] != updates[1][0]["micro-batches"][0]


def test_restarted_ddp_adds_otherwise_and_we_do_not(tmp_path: Path) -> None:
    """DDP lays its buckets out anew after the first pass, so the first pass after a restart has other bytes than the
    same pass without one. It takes three processes to see it: with two, a + b = b + a."""

    def gradients(parts: Setup, network: torch.nn.Module) -> str:
        parts.state.optimizer.zero_grad(set_to_none=True)
        micro = parts.loader.prepare(0)[0]
        noised = parts.stepper.objective.add_noise(micro.x0, micro.noise, micro.t)
        answer = network(noised.x_t, noised.t, return_dict=False)[0]
        parts.stepper.objective.loss(answer, noised)[1].sum().backward()
        return digest([p.grad for p in parts.state.model.parameters() if p.grad is not None])

    def ours(parts: Setup) -> str:
        parts.state.optimizer.zero_grad(set_to_none=True)
        found: list[str] = []

        def judge(*_: Any) -> None:
            found.append(digest([p.grad for p in parts.state.model.parameters() if p.grad is not None]))

        weights = [(p, p.detach().clone()) for p in parts.state.model.parameters()]
        parts.stepper.step(parts.loader.prepare(0), 0, on_gradients=judge)
        with torch.no_grad():
            for parameter, before in weights:
                parameter.copy_(before)
        return found[0]

    def act(rank: int) -> None:
        with join_group(tiny().train) as group:
            parts, exact = build_with(group, model__widths="16,16"), build_with(group, train__shards=12)
            torch.nn.init.ones_(parts.state.model.conv_out.weight)
            wrapped = DistributedDataParallel(parts.state.model, bucket_cap_mb=0.05)
            theirs = [gradients(parts, wrapped) for _ in range(3)]
            plain = build_with(group, model__widths="16,16")
            keep(
                tmp_path,
                rank,
                ddp=theirs,
                plain=[ours(plain), ours(plain), ours(build_with(group, model__widths="16,16"))],
                exact=[ours(exact), ours(exact), ours(build_with(group, train__shards=12))],
            )

    launch(3, tmp_path, act)
    for told in kept(tmp_path, 3):
        assert told["ddp"][1] == told["ddp"][2]
        assert told["ddp"][0] != told["ddp"][1]
        assert len(set(told["plain"])) == 1
        assert len(set(told["exact"])) == 1


@pytest.mark.parametrize(
    ("shards", "processes", "words"),
    [(None, 5, "cannot share evenly. Use 20 or 25"), (12, 5, "Launch one of 1, 2, 3, 4, 6, 12 processes")],
)
def test_uneven_shares_are_refused_in_words(shards: int | None, processes: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_divisible(tiny(**SIZE | {"train__shards": shards}), processes)


# --- non-finite values --------------------------------------------------------------------------------------------


def test_non_finite_value_of_one_process_is_refused_on_all(tmp_path: Path) -> None:
    def act(rank: int) -> None:
        with join_group(tiny().train) as group:
            told: dict[str, Any] = {}
            for name, settings in {"plain": {}, "exact": {"train__shards": 12}}.items():
                parts = build_with(group, **settings)
                before = digest(taken(parts))
                if rank == 1:
                    parts.state.model.conv_in.weight.register_hook(lambda g: g * torch.nan)
                view = parts.stepper.step(parts.loader.load(2), 2)
                after = [value.detach() for value in parts.state.model.state_dict().values()]
                told[name] = [float(view.refused), digest(after) == before]
            parts = build_with(group)  # the negative control: nobody asks the others
            taken(parts)
            if rank == 1:
                parts.state.model.conv_in.weight.register_hook(lambda g: g * torch.nan)
            told["alone"] = float(parts.stepper.single_process().step(parts.loader.load(2), 2).refused)
            keep(tmp_path, rank, **told)

    launch(3, tmp_path, act)
    told = kept(tmp_path, 3)
    assert all(each["plain"] == each["exact"] == [1, True] for each in told)
    assert [each["alone"] for each in told] == [0, 1, 0]


def test_roll_call_tells_processes_that_are_no_longer_one_run(tmp_path: Path) -> None:
    def act(rank: int) -> None:
        with join_group(tiny().train) as group:
            told: dict[str, Any] = {}
            for name in ("sound", "drifted", "doubled"):
                parts = build_with(group)
                roll, place = (
                    ProcessCheck(
                        parts.config,
                        parts.runtime.group,
                        parts.state.model,
                        parts.state.weights,
                        parts.batches,
                        Speedometer(),
                    ),
                    0 if name == "doubled" and rank == 1 else rank,
                )
                if name == "drifted" and rank == 1:
                    parts.state.model.conv_in.weight.data.view(-1)[7].mul_(1 + 1e-6)
                feed = BatchLoader(parts.config, parts.batches, rank=place, processes=3)
                view = parts.stepper.step(feed.load(0), 0)
                told[name] = roll.check(view, replaced=False)
            keep(tmp_path, rank, **told)

    launch(3, tmp_path, act)
    healthy = {DRIFT.name: 0.0, SAME_NOISE.name: 0.0, OVERLAP.name: 0.0}
    for told in kept(tmp_path, 3):
        assert told["sound"] == healthy
        assert told["drifted"] == healthy | {DRIFT.name: 1.0}
        assert told["doubled"] == healthy | {SAME_NOISE.name: 1.0, OVERLAP.name: pytest.approx(2 / 3)}


# --- whole runs ---------------------------------------------------------------------------------------------------


def start(
    count: int, run: Path, happening: Callable[[int], None] | None = None, *, resume: bool = False, **settings: Any
) -> Launch:
    def act(rank: int) -> None:
        if happening is not None:
            happening(rank)
        if resume:
            start_module.resume(run, terminal=Quiet())
        else:
            start_module.train(tiny(**SIZE | settings), run=run, terminal=Quiet())

    return Launch(count, act, run.with_name(f"{run.name}-said"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("whole") / "run"
    start_module.train(tiny(**EXACT), run=run, terminal=Quiet())
    return run


def test_killed_process_ends_all_and_another_number_carries_on_to_the_same_bytes(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = start(3, run, at(6, 1, die), **EXACT)
    assert first.codes() == [75, -9, 75]
    said = "".join(first.said(rank) for rank in range(3))
    assert said.count("Process 1 is gone") == 1
    assert "safelight resume" in said
    assert max(steps(run / "checkpoints")) == 6  # nothing is lost: not even the steps since the last checkpoint
    again = start(2, run, at(9, 0, die), resume=True)
    assert again.codes() == [-9, 75]
    assert "Process 0 is gone" in again.said(1)
    assert start(4, run, resume=True).codes() == [0, 0, 0, 0]
    assert fingerprints(run) == fingerprints(whole)
    ours, theirs = (np.asarray(Image.open(each / "samples" / "step_00000012.png"), np.int16) for each in (run, whole))
    assert np.abs(ours - theirs).max() <= 1  # drawn by four processes and by one
    for name in ("loss/mean", "loss/whitened", "gradient/norm"):
        assert read_signal(run / "record.sqlite", name) == read_signal(whole / "record.sqlite", name)


def drift(stepper: Stepper, number: int) -> None:
    if number == 6:
        stepper.state.model.conv_in.weight.data.view(-1)[7].mul_(1.5)


ILL: dict[str, tuple[Callable[[Stepper, int], None], bool]] = {  # what one does; with whose place
    "distributed.drift": (drift, False),
    "distributed.same-noise": (lambda *_: None, True),
    "": (lambda *_: None, False),
}


@pytest.mark.parametrize("cause", ILL)
def test_processes_that_are_no_longer_one_run_are_named(cause: str, tmp_path: Path) -> None:
    """Of the doctor's findings on real processes; with a roll call at every third step."""
    do, doubled = ILL[cause]

    def happening(rank: int) -> None:
        take, feed = Stepper.step, BatchLoader.__init__

        def taking(self: Stepper, inputs: Any, number: int, *more: Any, **named: Any) -> Any:
            if rank == 2:
                do(self, number)
            return take(self, inputs, number, *more, **named)

        def seated(self: BatchLoader, *given: Any, **named: Any) -> None:
            feed(self, *given, **named | ({"rank": 0} if rank == 2 and doubled else {}))

        rollcall_module.CHECK_INTERVAL, Stepper.step, BatchLoader.__init__ = 3, taking, seated  # only in the fork
        # Which of them is the slowest, or waits, is not the question, and the answer depends on the machine.
        speed_module.time = SimpleNamespace(perf_counter=itertools.count().__next__)  # type: ignore[assignment]
        ProcessGroup.waited = property(lambda self: 0.0, lambda self, seconds: None)  # type: ignore[assignment]

    run = tmp_path / "run"
    assert start(3, run, happening, train__steps=13).codes() == [0, 0, 0]
    told = [finding.cause for finding in safelight.diagnose(run)]
    assert cause in told if cause else not [each for each in told if each.startswith("distributed.")]


@pytest.mark.parametrize(("how", "words"), [(stop, "no heartbeat"), (hang, "in the same step")])
def test_process_that_hangs_is_given_up(
    how: Callable[[], None], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse_module, "GRACE", 0.0)  # its thread will never notice by itself
    run = tmp_path / "run"
    started = start(2, run, at(6, 1, how), train__timeout=0.5)
    started.wait(0)
    if how is stop:
        started.kill(1)
    assert started.codes() == [75, -9 if how is stop else 75]
    assert words in started.said(0) + started.said(1)
    assert json.loads((run / "run.json").read_text())["status"] == "interrupted"
    assert max(steps(run / "checkpoints")) == 6


def test_first_process_that_stops_with_the_signs_of_life_is_given_up(tmp_path: Path) -> None:
    started = start(2, tmp_path / "run", at(6, 0, stop), train__timeout=0.5)
    started.wait(1)
    started.kill(0)
    assert started.codes() == [-9, 75]
    assert "Process 0 is gone" in started.said(1)


def test_lost_process_is_named_while_the_first_is_busy(tmp_path: Path) -> None:
    run = tmp_path / "run"

    def part_ways(rank: int) -> None:
        draw = trainer_module.draw_preview

        def drawing(*given: Any, **named: Any) -> Any:
            drawn = draw(*given, **named)
            while rank == 0 and not given[2].is_broken:
                time.sleep(0.01)  # alone with its pictures, until the other thread has found out
            if rank == 2:
                die()
            return drawn

        trainer_module.draw_preview = drawing  # only in the fork

    started = start(3, run, part_ways, sample__every=6, sample__count=2, train__timeout=0.5)
    assert started.codes() == [75, 75, -9]
    assert "Process 2 is gone" in started.said(0) + started.said(1)
    assert (run / "samples" / "denoising_00000006.png").is_file()  # of two images, of which the first process drew one


def test_picture_that_a_lost_process_prevented_is_drawn_after_the_restart(tmp_path: Path) -> None:
    run, picture = tmp_path / "run", tmp_path / "run" / "samples" / "step_00000006.png"

    def die_drawing(rank: int) -> None:
        if rank == 1:
            trainer_module.draw_preview = lambda *_, **__: die()  # type: ignore[assignment]  # only in the fork

    assert start(2, run, die_drawing, sample__every=6).codes() == [75, -9]
    assert max(steps(run / "checkpoints")) == 6
    assert not picture.exists()
    assert start(2, run, resume=True).codes() == [0, 0]
    assert picture.is_file()


def test_signal_to_one_process_stops_all_at_the_same_step(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    started = start(3, run, at(5, 2, lambda: os.kill(os.getpid(), signal.SIGTERM)), **EXACT)
    assert started.codes() == [75, 75, 75]
    said = "".join(started.said(rank) for rank in range(3))
    assert said.count("Stopped by SIGTERM after step 7 of 12; everything is saved") == 1
    assert max(steps(run / "checkpoints")) == 7
    assert start(1, run, resume=True).codes() == [0]
    assert fingerprints(run) == fingerprints(whole)


def test_first_process_fails_for_all_in_words_that_are_told_once(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text("")
    started = start(3, run)
    assert started.codes() == [2, 2, 2]
    assert "".join(started.said(rank) for rank in range(3)).count("already holds a run") == 1


def test_restart_by_a_launcher_carries_on(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"

    def attempt(count: int, restart: int) -> Launch:
        def act(rank: int) -> None:
            if restart == 0:
                at(6, 1, die)(rank)
            start_module.train(tiny(**EXACT), run=run, terminal=Quiet())

        restarts = {"TORCHELASTIC_RESTART_COUNT": str(restart), "TORCHELASTIC_MAX_RESTARTS": "9"}
        return Launch(count, act, tmp_path / f"said-{restart}", **restarts)

    assert attempt(2, 0).codes() == [75, -9]
    assert attempt(3, 1).codes() == [0, 0, 0]
    assert fingerprints(run) == fingerprints(whole)


def test_step_whose_comparison_lost_a_process_is_saved_with_all_that_it_left(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"

    def die_comparing(rank: int) -> None:
        check = ProcessCheck.check

        def checking(self: ProcessCheck, view: Any, *, replaced: bool) -> dict[str, float]:
            if rank == 1 and view.step == 6:
                die()
            return check(self, view, replaced=replaced)

        rollcall_module.CHECK_INTERVAL, ProcessCheck.check = 3, checking  # type: ignore[method-assign]  # only in the fork

    assert start(3, run, die_comparing, **EXACT).codes() == [75, -9, 75]
    assert max(steps(run / "checkpoints")) == 7
    assert start(3, run, resume=True).codes() == [0, 0, 0]
    assert fingerprints(run) == fingerprints(whole)
    for name in ("epoch_loss", "epoch_steps"):
        assert newest(run).state[name] == newest(whole).state[name]


def test_what_is_said_between_processes_arrives(tmp_path: Path) -> None:
    def act(rank: int) -> None:
        with join_group(tiny().train) as group:
            order = group.local_main_first(lambda: time.time())
            told = group.broadcast(lambda: {"from": rank, "nan": float("nan")})
            heard = group.all_gather_object([rank] * rank)
            flat = group.broadcast_tensor(torch.full((3,), float(rank), dtype=torch.float64))
            drawn = share_rows(group, 4, lambda start, stop: torch.arange(start, stop).float().view(-1, 1))
            with pytest.raises(RuntimeError, match="process 1: ZeroDivisionError"):
                share_rows(group, 4, lambda start, stop: torch.ones(stop - start, 1) / (1 if rank != 1 else 1 // 0))
            sizes = [
                size for size in (1, 2, 3) if share_rows(group, size, lambda a, b: torch.ones(b - a, 1)).sum() == size
            ]
            keep(tmp_path, rank, order=order, told=told["from"], heard=heard, flat=flat.tolist(), sizes=sizes)
            assert drawn.flatten().tolist() == [0, 1, 2, 3]

    launch(3, tmp_path, act)
    found = kept(tmp_path, 3)
    assert all(each["sizes"] == [1, 2, 3] for each in found)
    assert min(each["order"] for each in found) == found[0]["order"]
    assert all(each["told"] == 0 and each["heard"] == [[], [1], [2, 2]] and each["flat"] == [0] * 3 for each in found)


def test_alone_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew_module, "dist", None)
    group = ProcessGroup()
    assert group.broadcast(lambda: 5) == 5
    assert group.all_gather_object("a") == ["a"]
    assert group.all_gather(torch.ones(2)).shape == (1, 2)
    parts = parts_of(**SIZE)
    assert type(parts.stepper.reduction) is Reduction


# --- before the first step ----------------------------------------------------------------------------------------


def dying(moment: str) -> Callable[[int], None]:
    """Joins and takes turns; one of the processes dies at this moment."""

    def act(rank: int) -> None:
        if moment == "before it came" and rank == 1:
            die()
        if moment == "before it was heard" and rank == 1:
            Heartbeat._meet = lambda self, until: die()  # only in the fork
        with join_group(tiny(train__timeout=0.5).train) as group:
            group.all_gather_object(rank)  # all have come
            group.local_main_first(lambda: die() if moment == "at its turn" and rank == 0 else None)

    return act


@pytest.mark.parametrize(
    ("moment", "codes", "words"),
    [
        ("before it came", [{2}, {-9}, {2}], "could not find each other"),
        # 2: one that had not seen all come yet when the first one left, which cannot know who is missing.
        ("before it was heard", [{75}, {-9}, {2, 75}], "Process 1 did not start in time"),
        ("at its turn", [{-9}, {75}, {75}], "Process 0 is gone"),
    ],
)
def test_process_that_dies_early_is_not_waited_for(moment: str, codes: list[set[int]], words: str, tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    if moment == "before it came":
        monkeypatch.setattr(crew_module, "MEETING_TIMEOUTS", 1)  # all that can come of it is that nobody is found
    ended = Launch(3, dying(moment), tmp_path)
    found = ended.codes()
    assert [code in expected for code, expected in zip(found, codes, strict=True)] == [True] * 3, found
    for rank in range(3):
        assert "Traceback" not in ended.said(rank)
    assert re.search(words, "".join(ended.said(rank) for rank in range(3)))


def test_who_has_come_may_take_longer_than_a_meeting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control of the above: it is the meeting that may not take long, not what follows."""
    monkeypatch.setattr(pulse_module, "NAMING_SECONDS", 0.0)  # nobody is lost who could be named

    def act(rank: int) -> None:
        with join_group(tiny().train) as group:
            (tmp_path / f"met-{rank}").touch()
            time.sleep(2 * seconds * rank)
            assert group.all_gather(torch.ones(1)).sum() == 2

    for seconds in (0.5, 2.0, 8.0, 32.0):  # a machine may be too busy to bring them together so soon
        monkeypatch.setattr(crew_module, "MEETING_TIMEOUTS", seconds / tiny().train.timeout)
        ended = Launch(2, act, tmp_path)
        codes = ended.codes()
        if len(list(tmp_path.glob("met-*"))) == 2:
            break
    assert codes == [0, 0], ended.said(0) + ended.said(1)


def test_an_accelerator_of_a_test_before_does_not_reach_the_processes(tmp_path: Path) -> None:
    """Its state is shared by all of a process, and a fork has a copy: the processes would not meet."""
    state = importlib.import_module("accelerate.state").PartialState
    state(cpu=True)
    try:

        def act(rank: int) -> None:
            with join_group(tiny().train) as group:
                assert group.size == 2

        launch(2, tmp_path, act)
    finally:
        state._reset_state()


@pytest.mark.parametrize(("succeeds", "lost"), [(True, False), (False, True)])
def test_what_completes_just_after_a_timeout_is_asked_once_more(succeeds: bool, lost: bool) -> None:
    class Work:
        waits = 0

        def wait(self, _: object) -> None:
            self.waits += 1
            if self.waits == 1 or not succeeds:
                raise RuntimeError("timed out" if self.waits == 1 else "broken")

        def is_completed(self) -> bool:
            return True

    group, work = ProcessGroup(), Work()
    group._lost = lambda error: ProcessLost(str(error))  # type: ignore[method-assign]
    if lost:
        with pytest.raises(ProcessLost, match="broken"):
            group._wait(work)
    else:
        group._wait(work)
    assert work.waits == 2
