"""The real package writes offline, in a process of its own; its run folder is read back with its own messages."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from safelight.record.sinks.batch import ReadingTable, SinkBatch
from safelight.record.sinks.wandb import WeightsAndBiases, run_id, switched_off

PATIENCE = 280.0  # seconds until a test gives up: what is awaited ends the wait at once
needs_wandb = pytest.mark.skipif(
    importlib.util.find_spec("wandb") is None, reason="needs wandb: pip install 'safelight[wandb]'"
)

TRAINING = """
import json, sys
from pathlib import Path
import numpy as np
from PIL import Image
from safelight.record.sinks.batch import SinkBatch, Event, Histogram, LoggedPicture, ReadingTable
from safelight.record.sinks import open_sinks

folder, first, last, seconds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
hooks, said = (sys.exit, sys.excepthook), []
config = {"train": {"steps": last}}
pump = open_sinks(["wandb"], folder, config=config, run_name="mine", from_step=first, say=said.append)
steps = np.arange(first, last)
numbers = np.stack([steps / 4, np.where(steps == 7, np.nan, 0.5)], axis=1).astype(np.float32)
pump.put(SinkBatch(readings=(ReadingTable(steps, ("loss/mean", "optimizer/lr"), numbers),)))
Image.new("RGB", (30, 20)).save(folder / "grid.png")
late = ReadingTable(np.array([last - 2]), ("probe/raw",), np.ones((1, 1), np.float32))
pump.put(SinkBatch(
    readings=(late,),
    pictures=(LoggedPicture(last, "samples", folder / "grid.png"),),
    histograms=(Histogram(last, "weights", np.array([1, 2]), np.array([0.0, 0.5, 1.0])),),
    events=(Event(last, "refused", {"size": float("nan")}),),
))
sys.stdin.read()  # until the moment has come
pump.close(seconds)
print(json.dumps({"said": said, "hooks": hooks == (sys.exit, sys.excepthook)}))
"""


def train(
    folder: Path,
    first: int,
    last: int,
    seconds: float = PATIENCE,
    moment: Callable[[], object] = int,
    **variables: str,
) -> dict[str, Any]:
    """A run in a process of its own, since W&B reads its variables once; without a key, an account or a terminal. It
    closes its loggers within `seconds` after `moment` came back."""
    folder.mkdir(exist_ok=True)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    home = {"HOME": str(folder.parent), "NETRC": str(folder.parent / "no-netrc"), "WANDB_ERROR_REPORTING": "false"}
    arguments = [str(folder), str(first), str(last), str(seconds)]
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINING, *arguments],
        env={**clean, **home, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        moment()
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert err == "", "W&B writes into the terminal"
    return json.loads(out)


def logged(folder: Path) -> list[Any]:
    """The records of one run folder of W&B: a log in LevelDB's format, of its own protobuf messages."""
    from wandb.proto.wandb_internal_pb2 import Record

    [path] = folder.glob("*.wandb")
    records = []
    for content in chunks(path.read_bytes()):
        records.append(Record())
        records[-1].ParseFromString(content)
    return records


def chunks(log: bytes, block: int = 32768) -> Iterator[bytes]:
    """Blocks of 32 KB; each piece has checksum, length and kind: 1 whole, 2 first, 3 middle, 4 last."""
    assert log[:4] == b":W&B"
    at, parts = 7, list[bytes]()
    while at + 7 <= len(log):
        if block - at % block < 7:
            at += block - at % block
            continue
        checksum, length, kind = struct.unpack_from("<IHB", log, at)
        piece = log[at + 7 : at + 7 + length]
        assert zlib.crc32(piece, zlib.crc32(bytes([kind]))) == checksum
        at += 7 + length
        parts.append(piece)
        if kind in (1, 4):
            yield b"".join(parts)
            parts.clear()


def history(folder: Path) -> dict[int, dict[str, Any]]:
    rows = {}
    for record in logged(folder):
        if record.WhichOneof("record_type") == "history":
            row: dict[str, Any] = {}
            for item in record.history.item:
                *outer, last = item.nested_key or [item.key]
                place = row.setdefault(outer[0], {}) if outer else row
                place[last] = json.loads(item.value_json)
            rows[row["_step"]] = row
    return rows


@needs_wandb
def test_without_a_key_it_writes_offline_and_all_of_it(tmp_path: Path) -> None:
    told = train(tmp_path / "run", 0, 100)
    assert len(told["said"]) == 1
    assert "no API key, so it writes offline" in told["said"][0]
    assert told["hooks"], "sys.exit and sys.excepthook are as they were"
    [folder] = (tmp_path / "run" / "wandb").glob("offline-run-*")
    rows = history(folder)
    assert [step for step in rows if "loss/mean" in rows[step]] == list(range(100))
    assert all(rows[step]["loss/mean"] == step / 4 for step in range(100))
    assert rows[7]["nonfinite"] == 1
    assert "nonfinite" not in rows[8]
    assert str(rows[7]["optimizer/lr"]).lower() == "nan"
    assert rows[99]["probe/raw"] == 1, "what came late is not dropped"
    assert rows[99]["loss/mean"] == 99 / 4, "and overwrites nothing"
    assert rows[100]["picture/samples"]["width"] == 30
    picture = folder / "files" / rows[100]["picture/samples"]["path"]
    assert picture.read_bytes() == (tmp_path / "run" / "grid.png").read_bytes()
    assert (rows[100]["weights"]["values"], rows[100]["weights"]["bins"]) == ([1, 2], [0.0, 0.5, 1.0])
    assert json.loads(rows[100]["event/refused"]) == {"size": "NaN"}
    [run] = [record.run for record in logged(folder) if record.WhichOneof("record_type") == "run"]
    assert (run.display_name, run.project) == ("mine", "safelight")
    assert run.run_id == (tmp_path / "run" / "wandb-id").read_text().strip()
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert config["train"] == {"steps": 100}


@needs_wandb
def test_a_resume_is_the_same_run(tmp_path: Path) -> None:
    for first, last in [(0, 20), (10, 30)]:
        assert train(tmp_path / "run", first, last, WANDB_MODE="offline")["said"] == []
    folders = sorted((tmp_path / "run" / "wandb").glob("offline-run-*"))
    assert len(folders) == 2
    runs = [record.run for f in folders for record in logged(f) if record.WhichOneof("record_type") == "run"]
    assert runs[0].run_id == runs[1].run_id == (tmp_path / "run" / "wandb-id").read_text().strip()
    assert [sorted(history(folder)) for folder in folders] == [list(range(21)), list(range(10, 31))]


@needs_wandb
def test_its_usual_variables_are_honoured(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    told = train(
        tmp_path / "run",
        0,
        5,
        WANDB_MODE="offline",
        WANDB_PROJECT="cats",
        WANDB_NAME="tom",
        WANDB_RUN_ID="chosen",
        WANDB_DIR=str(tmp_path / "elsewhere"),
    )
    assert told["said"] == []
    [folder] = (tmp_path / "elsewhere" / "wandb").glob("offline-run-*-chosen")
    [run] = [record.run for record in logged(folder) if record.WhichOneof("record_type") == "run"]
    assert (run.project, run.display_name, run.run_id) == ("cats", "tom", "chosen")
    assert (tmp_path / "run" / "wandb-id").read_text() == "chosen\n"
    assert not (tmp_path / "run" / "wandb").exists()


@needs_wandb
@pytest.mark.parametrize("online", [{}, {"WANDB_MODE": "online"}])
def test_a_server_that_never_answers_holds_up_nothing(tmp_path: Path, online: dict[str, str]) -> None:
    """Neither the closing nor the end of the program; with `online` and no key nobody is asked for one."""
    with socket.create_server(("127.0.0.1", 0)) as silent, ExitStack() as kept:
        silent.settimeout(PATIENCE)
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        # W&B itself would wait for 90 s: that it waits for ever here shows a program that waits for it.
        variables = {"WANDB_BASE_URL": address, "WANDB_INIT_TIMEOUT": "100000", **online}
        if online:
            told = train(tmp_path / "run", 0, 5, **variables)
        else:

            def asked() -> None:
                kept.enter_context(silent.accept()[0])

            told = train(tmp_path / "run", 0, 5, 0.1, asked, WANDB_API_KEY="0" * 40, **variables)
    assert len(told["said"]) == 1
    assert ("writes offline" if online else "left behind") in told["said"][0]


@pytest.mark.parametrize("variables", [{"WANDB_MODE": "disabled"}, {"WANDB_DISABLED": "true"}])
def test_switched_off_by_a_variable_it_does_nothing(tmp_path: Path, variables: dict[str, str]) -> None:
    """Also where the package is missing: it is not even imported."""
    told = train(tmp_path / "run", 0, 5, **variables)
    assert told["said"] == ["The logger wandb is switched off by WANDB_MODE or WANDB_DISABLED."]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["grid.png"]


@pytest.mark.parametrize(
    ("variables", "off"),
    [
        ({}, False),
        ({"WANDB_MODE": "offline"}, False),
        ({"WANDB_MODE": "Disabled"}, True),
        ({"WANDB_DISABLED": "1"}, True),
        ({"WANDB_DISABLED": "TRUE"}, True),
        ({"WANDB_DISABLED": "false"}, False),
        ({"WANDB_DISABLED": ""}, False),
    ],
)
def test_what_switches_it_off(variables: dict[str, str], off: bool) -> None:
    assert switched_off(variables) == off


def test_the_run_folder_remembers_the_id(tmp_path: Path) -> None:
    first = run_id(tmp_path, {})
    assert run_id(tmp_path, {}) == first
    assert run_id(tmp_path, {"WANDB_RUN_ID": "mine"}) == "mine"
    assert run_id(tmp_path, {}) == "mine"
    (tmp_path / "other").mkdir()
    assert run_id(tmp_path / "other", {}) != first


class Server:
    """Stands in for the package, online: a run of which the server already has some steps."""

    def __init__(self, has_steps: int) -> None:
        self.has_steps, self.asked, self.rows = has_steps, dict[str, Any](), list[tuple[int, dict[str, Any]]]()
        self.Image = self.Histogram = self.Settings = SimpleNamespace

    def setup(self, settings: object) -> Any:
        found = {"mode": "online", "api_key": "k", "run_name": None, "project": None, "resume": None}
        return SimpleNamespace(settings=SimpleNamespace(**found))

    def init(self, **asked: Any) -> Any:
        self.asked = asked
        finish = SimpleNamespace(starting_step=self.has_steps, finish=int)
        finish.log = lambda row, step: self.rows.append((step, row))
        return finish


@pytest.mark.parametrize(("has_steps", "sent"), [(0, range(10, 20)), (10, range(10, 20)), (15, range(15, 20))])
def test_online_a_resume_sends_no_step_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_steps: int, sent: range
) -> None:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    server, said = Server(has_steps), list[str]()
    monkeypatch.setitem(sys.modules, "wandb", server)
    sink = WeightsAndBiases(tmp_path, config={}, run_name="mine", from_step=10, say=said.append)
    steps = np.arange(10, 20)
    sink.write(SinkBatch(readings=(ReadingTable(steps, ("loss",), np.ones((10, 1), np.float32)),)))
    sink.close()
    assert [step for step, _ in server.rows] == list(sent)
    assert [server.asked[key] for key in ("mode", "resume", "id")] == [None, "allow", run_id(tmp_path, {})]
    assert len(said) == (has_steps == 15)
