"""Malformed config files, by the reader of `--config` and the checks that follow it."""

from __future__ import annotations

import functools
import random
from pathlib import Path

from safelight.config import Config
from safelight.config.check import check
from safelight.config.resolve import resolve, to_yaml, types_of_fields
from torture.fuzz_child import Reader, watch
from torture.mutation import mutate
from torture.scenario import Scenario, Trial

WORDS = (
    "1", "0", "-1", "1.5", "1e-4", "1e400", ".nan", ".inf", "-.inf", "0x10", "0o17", "1_000", "190:20:30", "true",
    "yes",
    "~", "null", "''", '"\\0"', "[]", "{}", "[1, [2, [3]]]", "{a: 1}", "2026-11-16", "2026-11-16 10:00:00", "=", "<<",
    "!!binary aGVsbG8=", "!!set {a, b}", "!!omap [a: 1]", "!!timestamp 1", "!!int x", "!!float x", "!!bool 7",
    "!!str 5",
    "!!python/object/apply:os.system ['touch canary']", "!!python/name:os.system", "!!python/tuple [1, 2]",
    "!!python/object/new:subprocess.Popen [['touch', 'canary']]", "!!python/module:os", "!canary x", "*nowhere",
    "&a [*a]",
    "${HOME}", "${oc.env:HOME}", "$(touch canary)", "{_target_: os.system, _args_: ['touch canary']}", "/dev/zero",
    "../..",
    "é" * 50, "9" * 5000, "'" + "x" * 3000 + "'", "[" + "1, " * 800 + "]", "|\n    text\n    more", ">\n    folded",
    "? complex\n    : key", "16, 32", "[16, 32]", "cosine", "crop", "auto", "none", "{1: 2, null: 3, [4]: 5}",
)  # fmt: skip
LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
STRANGE = (
    b"", b"\0", b"\xff\xfe\0\0", b"\xef\xbb\xbftrain:\n  steps: 5\n", "train:\n  steps: 5\n".encode("utf-16"),
    b"- a\n- b\n",
    b"text", b"7", b"---\na: 1\n---\nb: 2\n", b"%YAML 9.9\n---\n{}", b"\t- x", b"{" * 3000, b"[" * 3000, b"a: " * 500,
    b"? " * 1000, b"!!python/object/apply:os.system ['touch canary']", LAUGHS.encode(),
    b"train: &a\n  <<: *a\n  steps: 3\n",
    b"train: {steps: 3}\ntrain: {steps: 4}\n", b"train:\n  steps: 3\n  steps: 4\n", b"train.steps: 5\n",
    b"&a {*a : *a}",
    b"a: &a {b: *a}\n", b"? {a: 1}\n: 2\n", b"? [1, 2]\n: 3\n", b"<<: [1, 2]\n", b"<<: {train: {steps: 2}}\n",
    b"x" * 70_000,
)  # fmt: skip


def make(draw: random.Random, sound: list[bytes], keys: list[str]) -> bytes:
    kind = draw.random()
    if kind < 0.35:
        return mutate(draw.choice(sound), [*sound, *STRANGE], draw)
    if kind < 0.45:
        return mutate(draw.choice(STRANGE), [*sound, *STRANGE], draw) if draw.random() < 0.7 else draw.choice(STRANGE)
    lines: list[str] = []
    for key in draw.sample(keys, draw.randint(1, 5)):
        section, _, name = key.partition(".")
        name = (
            name if draw.random() < 0.9 else draw.choice([name[:-1], name.upper(), "_target_", "__class__", "", "? x"])
        )
        lines.append(f"{section}:\n  {name}: {draw.choice(WORDS)}")
    text = "\n".join(lines) + "\n"
    return text.encode("utf-8", "surrogatepass") if draw.random() < 0.9 else mutate(text.encode(), sound, draw)


def open_reader(trial: Trial) -> Reader:
    sound = [to_yaml(resolve(preset=preset)).encode() for preset in ("digits", "tiny")]
    sound += [
        b"train:\n  steps: 100\n  batch_size: 8\nmodel:\n  widths: [32, 64]\n  attention: [16]\n",
        b"data: {source: x}\n",
    ]
    path = Path(trial.folder) / "config.yaml"

    def read(content: bytes) -> None:
        path.write_bytes(content)
        config = resolve(file=path)
        assert isinstance(config, Config)
        check(config)
        to_yaml(config)

    for content in sound:
        read(content)
    return Reader(functools.partial(make, sound=sound, keys=[*types_of_fields()]), read)


FUZZ_CONFIGS = Scenario(
    "fuzz: configs",
    "Malformed YAML: tags, anchors, merges, duplicates, depth, other encodings, hostile values for every setting.",
    "inputs", 6_000, 6_000, 200, 1_500, lambda trial: watch(trial, open_reader),
)  # fmt: skip
