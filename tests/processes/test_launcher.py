"""Processes that meet in a store that outlives them, and under the real torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch.distributed as dist
from tiny import fingerprints

from safelight.processes.launcher import meet

LIMIT = 60.0  # seconds of a meeting, which takes a fraction of one


def met(store: dist.Store, size: int) -> set[str]:
    """A start of so many processes: the key that the first one writes, as each of them reads it."""
    read: dict[int, bytes] = {}

    def act(rank: int) -> None:
        own = meet(store, rank, size, LIMIT)
        if rank == 0:
            own.set("address", os.urandom(4).hex())
        own.wait(["address"])
        read[rank] = own.get("address")

    threads = [threading.Thread(target=act, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert sorted(read) == list(range(size))
    return {each.decode() for each in read.values()}


def test_every_start_has_a_part_of_the_store_of_its_own() -> None:
    store, seen = dist.HashStore(), set[str]()
    for size in (3, 3, 2, 4, 1, 3):  # restarts, also on other numbers of processes
        found = met(store, size)
        assert len(found) == 1
        assert not found & seen
        seen |= found


def test_a_process_that_dies_while_they_meet_is_not_waited_for_in_the_old_place() -> None:
    store = dist.HashStore()
    first: list[dist.Store] = []
    waits = threading.Thread(target=lambda: first.append(meet(store, 0, 2, LIMIT)))
    store.set("token/1", "of a process that is gone")
    waits.start()
    store.wait(["offer"])  # made for the one that is gone
    second = meet(store, 1, 2, LIMIT)
    waits.join(LIMIT)
    second.set("here", "1")
    assert first[0].get("here") == b"1"


def test_who_does_not_come_is_counted() -> None:
    with pytest.raises(RuntimeError, match="2 of 3 processes did not come"):
        meet(dist.HashStore(), 0, 3, 0.1)


SCRIPT = """
import os, signal, sys
from pathlib import Path
deaths, *words = sys.argv[1:]
from safelight.training.step import Stepper
take = Stepper.step
def taking(self, inputs, number, *more, **named):
    mark = Path(deaths, f"{number}-{os.environ['RANK']}")
    if mark.exists():
        mark.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return take(self, inputs, number, *more, **named)
Stepper.step = taking
from safelight.cli import main
sys.exit(main(words))
"""
SETTINGS = {
    "model.widths": "16", "model.attention": "", "model.conditional": "false", "model.norm_groups": "8",
    "train.threads": "1", "train.preflight": "off", "sample.every": "1000000", "sample.count": "4",
    "sample.steps": "3", "evaluate.every": "0", "ema.snapshots": "2",
}  # fmt: skip


def torchrun(layout: str, deaths: Path, run: Path, said: Path, restarts: int = 3) -> list[int]:
    """Exit codes of one launcher with two processes, or of two with one each, as on two machines."""
    script = deaths.parent / "script.py"
    script.write_text(SCRIPT)
    settings = [word for pair in SETTINGS.items() for word in ("--set", "=".join(pair))]
    words = [str(script), str(deaths), "train", "--run", str(run), "--steps", "8", "--batch-size", "8"]
    kept = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # at a port that is surely free
    places: dict[str, Sequence[str]] = {
        "one": ("--standalone",),
        "c10d": ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{kept.port}", "--rdzv-conf", "is_host=0"),
    }
    machines = 1 if layout == "one" else 2
    launchers = []
    for number in range(machines):
        command = [
            sys.executable, "-m", "torch.distributed.run", "--max-restarts", str(restarts), "--nnodes", str(machines),
            "--nproc-per-node", str(2 // machines), "--local-addr", "127.0.0.1", *places[layout],
            "--", *words, "--checkpoint-every", "3", *settings,
        ]  # fmt: skip
        with (said.with_name(f"{said.name}-{number}")).open("wb") as file:
            launchers.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file))
    try:
        return [launcher.wait(600) for launcher in launchers]
    finally:
        for launcher in launchers:
            launcher.kill()


@pytest.mark.parametrize(("layout", "moments"), [("one", ("4-1", "6-0")), ("c10d", ("5-1",))])
def test_torchrun_carries_a_killed_run_on_to_the_same_bytes(
    layout: str, moments: tuple[str, ...], tmp_path: Path, undisturbed: dict[str, str]
) -> None:
    deaths, run = tmp_path / "deaths", tmp_path / "run"
    deaths.mkdir()
    for moment in moments:
        (deaths / moment).touch()
    codes = torchrun(layout, deaths, run, tmp_path / "said")
    said = "".join(path.read_text() for path in tmp_path.glob("said-*"))
    assert not any(codes), said[-3000:]
    assert not any(deaths.iterdir())
    assert "connectFullMesh" not in said
    assert "already holds a run" not in said
    assert fingerprints(run) == undisturbed


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "deaths").mkdir()
    assert torchrun("one", folder / "deaths", folder / "run", folder / "said") == [0]
    return fingerprints(folder / "run")


def test_a_run_that_was_there_before_is_not_continued(tmp_path: Path) -> None:
    """The refused start is tried again by torchrun, and refused again: nobody asked to continue that run."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text("train: {steps: 3}\n")
    assert torchrun("one", tmp_path / "none", run, tmp_path / "said", restarts=1) == [1]
    assert [path.name for path in run.iterdir()] == ["config.yaml"]
    assert "already holds a run" in (tmp_path / "said-0").read_text()
