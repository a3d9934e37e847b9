"""Damaged and foreign files in a run folder, read by every command that opens runs."""

from __future__ import annotations

import contextlib
import functools
import json
import random
import shutil
from pathlib import Path

from torture.command_line import Refusal, answer, leave_after, stand_still, train_tiny
from torture.fuzz_child import Reader, watch
from torture.mutation import mutate, spell, spoil
from torture.scenario import Scenario, Trial

JSON = ("run.json", "model.json", "data.json")
DEEP = (b"[" * 200_000, b'{"a":' * 200_000, b"[" * 200_000 + b"]" * 200_000)
TYPES = (b"", b"5", b"[]", b"null", b'"x"', b"{}",
         b'{"data": 5}', b'{"data": {"class_names": 5}}', b'{"evaluation": []}',
         b'{"versions": 5}', b'{"step": "x", "seconds": "y"}', b'{"step": 1e999}', b'{"failures": [5]}', b"\xff\xfe\0",
         b'{"status": "\\u001b]52;c;aGk=\\u0007"}', b'{"evaluation": {"label": "\\u001b[2J"}}',
         b'{"evaluation": {"label": "x", "step": 1, "distance": 1, "error": 1}}',
         b'{"created": NaN, "heartbeat": Infinity}', b'{"step": ' + b"9" * 4000 + b"}")  # fmt: skip
STRANGERS = ("samples/step_00000020 (copy).png", "samples/step_.png", "samples/step_²².png",
             "samples/step_99999999.png",
             "samples/\x1b]52;c;aGk=\x07.png", "checkpoints/step_00000099", "checkpoints/step_x",
             "checkpoints/.DS_Store",
             "checkpoints/step_" + "9" * 200, "ema/step_00000001 (copy)", "ema/step_00000099", "ema/notes.txt",
             "samples/timelapse.gif", "record.sqlite-journal-old", "Thumbs.db", "a\nb")  # fmt: skip
COMMANDS = (["doctor", "run"], ["report", "run"], ["metrics", "run"], ["metrics", "run", "--json"], ["metrics",
            "run", "--csv=-"],
            ["compare", "run", "run"], ["sample", "run", "-n", "1", "--sample-steps", "1"], ["sample", "run", "-n",
            "1", "--step", "best"],
            ["export", "run"], ["export", "run", "--ema", "0.1"], ["resume", "run"], ["resume", "run", "--set",
            "train.steps=4", "--force"],
            ["sample", "run", "--label", "1"], ["doctor", "run", "--json"], ["compare", "run", "run",
            "--json"])  # fmt: skip

Damage = tuple[list[str], str, bytes]


def make(draw: random.Random, sound: dict[str, bytes]) -> Damage:
    """A command, and one file with the bytes that it is given."""
    command, kind = draw.choice(COMMANDS), draw.random()
    if kind < 0.15:
        return command, draw.choice(STRANGERS), draw.choice([b"", b"x", b"\x89PNG\r\n\x1a\n", *sound.values()])
    if kind < 0.4:
        return command, draw.choice(JSON), draw.choice(TYPES if draw.random() < 0.8 else DEEP)
    name = draw.choice([*sound])
    if kind < 0.7 and name.endswith(".json"):
        return command, name, spell(spoil(json.loads(sound[name]), draw), draw)
    return command, name, mutate(sound[name], [*sound.values()], draw)


def read(damage: Damage, sound: Path) -> None:
    command, name, content = damage
    for left in ("run", "pipeline"):
        shutil.rmtree(left, ignore_errors=True)
    shutil.copytree(sound, "run")
    target = Path("run") / name
    target.unlink(missing_ok=True)  # the sound one has the same bytes
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    answer(command)


def open_reader(trial: Trial) -> Reader:
    stand_still()
    leave_after(1)
    sound = Path("sound")
    shutil.rmtree(sound, ignore_errors=True)
    with contextlib.suppress(Refusal):  # it is left after its first step
        train_tiny(sound)
    files = {str(path.relative_to(sound)): path.read_bytes() for path in sorted(sound.rglob("*")) if path.is_file()}
    return Reader(
        functools.partial(make, sound=files),
        functools.partial(read, sound=sound),
        kind=lambda damage: f"for {damage[0][0]}",
    )


FUZZ_RUNS = Scenario(
    "fuzz: run folders",
    "One file of a run folder damaged, replaced, nested 200,000 deep or of other types, or a stranger beside "
    "it; then doctor, "
    "report, metrics, compare, sample, export or resume.",
    "damaged files", 50, 1_000, 30, 50, lambda trial: watch(trial, open_reader, audited=False, longest=120.0),
)  # fmt: skip
