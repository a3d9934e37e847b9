from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safelight.config import Config
from safelight.config.presets import PRESETS
from safelight.config.resolve import (
    LARGEST_FILE,
    describe,
    difference,
    flatten,
    resolve,
    to_dict,
    to_yaml,
    types_of_fields,
)
from safelight.errors import UsageError


def value_of(config: Config, key: str) -> object:
    section, _, name = key.partition(".")
    return getattr(getattr(config, section), name)


def write(folder: Path, text: str | bytes) -> Path:
    file = folder / "config.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def test_order_is_default_preset_file_flags(tmp_path: Path) -> None:
    """One setting that each layer has, and one that only the layers below have."""
    file = write(tmp_path, "train: {steps: 77, seed: 5}\ndata: {flip: true}")
    flags = {"train.steps": 99}
    preset, default = PRESETS["digits"]["train"]["steps"], Config().train.steps
    assert len({preset, default, 77, 99}) == 4
    layers = [
        ({}, default, 0, 32),
        ({"preset": "digits"}, preset, 0, 8),
        ({"preset": "digits", "file": file}, 77, 5, 8),
        ({"preset": "digits", "file": file, "settings": flags}, 99, 5, 8),
        ({"file": file, "settings": flags}, 99, 5, 32),
        ({"preset": "digits", "settings": flags}, 99, 0, 8),
    ]
    for given_, steps, seed, size in layers:
        config = resolve(**given_)
        assert (config.train.steps, config.train.seed, config.data.image_size) == (steps, seed, size), given_
    assert resolve(file=file).data.flip is True


def test_a_base_lies_below_everything(tmp_path: Path) -> None:
    base = resolve(settings={"train.steps": 5, "train.seed": 8})
    assert resolve(base=base, settings={"train.steps": 6}).train.steps == 6
    assert resolve(base=base, settings={"train.steps": 6}).train.seed == 8


@pytest.mark.parametrize("key", types_of_fields())
def test_every_setting_has_words_for_its_type(key: str) -> None:
    assert describe(types_of_fields()[key])


READ = [
    ("optimizer.lr", "1e-4", 1e-4),
    ("optimizer.lr", "3", 3.0),
    ("optimizer.lr", 3, 3.0),
    ("train.steps", "1_000", 1000),
    ("train.steps", "1e3", 1000),
    ("train.steps", " 5 ", 5),
    ("train.steps", 5.0, 5),
    ("optimizer.warmup", "none", None),
    ("optimizer.warmup", "null", None),
    ("optimizer.warmup", None, None),
    ("optimizer.warmup", "7", 7),
    ("model.init", "none", None),
    ("model.init", "folder", "folder"),
    ("data.source", "none", "none"),  # a folder may be called so
    ("data.source", "1e-4", "1e-4"),
    ("model.conditional", "true", True),
    ("model.conditional", "False", False),
    ("model.conditional", True, True),
    ("model.widths", "16", (16,)),
    ("model.widths", 16, (16,)),
    ("model.widths", "[8, 16]", (8, 16)),
    ("model.widths", "8,16", (8, 16)),
    ("model.widths", "(8 16)", (8, 16)),
    ("model.widths", [8, "16"], (8, 16)),
    ("model.attention", "", ()),
    ("model.attention", "[]", ()),
    ("ema.profiles", "0.03 0.2", (0.03, 0.2)),
    ("train.accumulate", "auto", "auto"),
    ("train.accumulate", "4", 4),
    ("diffusion.schedule", "linear", "linear"),
]


@pytest.mark.parametrize(("key", "value", "expected"), READ)
def test_values_are_read_as_meant(key: str, value: object, expected: object) -> None:
    found = value_of(resolve(settings={key: value}), key)
    assert found == expected
    assert type(found) is type(expected)


ILL = [
    ("train.steps", "many", "'many'", "a whole number", None),
    ("train.steps", 5.5, "5.5", "a whole number", None),
    ("train.steps", "5.5", "'5.5'", "a whole number", None),
    ("train.steps", True, "True", "a whole number", None),
    ("train.steps", None, "None", "a whole number", None),
    ("train.steps", [5], "[5]", "a whole number", None),
    ("train.steps", {"a": 1}, "{'a': 1}", "a whole number", None),
    ("train.steps", "", "''", "a whole number", None),
    ("train.steps", "0x10", "'0x10'", "a whole number", None),
    ("train.steps", "1e400", "'1e400'", "a whole number", None),
    ("optimizer.lr", "fast", "'fast'", "a number", None),
    ("optimizer.lr", True, "True", "a number", None),
    ("optimizer.lr", "nan", "'nan'", "a number", None),
    ("optimizer.lr", "inf", "'inf'", "a number", None),
    ("optimizer.lr", "-inf", "'-inf'", "a number", None),
    ("optimizer.lr", "1e999", "'1e999'", "a number", None),
    ("optimizer.lr", math.nan, "nan", "a number", None),
    ("optimizer.lr", math.inf, "inf", "a number", None),
    ("optimizer.lr", 10**400, "1000", "a number", None),
    ("optimizer.lr", "1" + "0" * 400, "1000", "a number", None),
    ("optimizer.warmup", "soon", "'soon'", "a whole number or none", None),
    ("optimizer.warmup", math.nan, "nan", "a whole number or none", None),
    ("model.conditional", "yes", "'yes'", "true or false", None),
    ("model.conditional", 1, "1", "true or false", None),
    ("model.widths", "wide", "'wide'", "a list of whole numbers", None),
    ("model.widths", [16, "x"], "[16, 'x']", "a list of whole numbers", None),
    ("model.widths", [16, math.inf], "[16, inf]", "a list of whole numbers", None),
    ("ema.profiles", "0.05", "'0.05'", "2 numbers", None),
    ("ema.profiles", [0.1, 0.2, 0.3], "[0.1, 0.2, 0.3]", "2 numbers", None),
    ("ema.profiles", [0.1, math.nan], "[0.1, nan]", "2 numbers", None),
    ("data.source", 5, "5", "a word", None),
    ("diffusion.schedule", "cosin", "'cosin'", "one of cosine, linear", "'cosine'"),
    ("diffusion.schedule", "COSINE", "'COSINE'", "one of cosine, linear", None),
    ("diffusion.prediction", "velocity", "'velocity'", "one of v_prediction, epsilon, sample", None),
    ("diffusion.prediction", "eps", "'eps'", "epsilon", "'epsilon'"),
    ("train.precision", "bf_16", "'bf_16'", "one of fp32, bf16, fp16", "'bf16'"),
    ("train.precision", 16, "16", "one of fp32, bf16, fp16", "'fp16'"),
    ("train.accumulate", "atuo", "'atuo'", "a whole number or auto", "'auto'"),
]


@pytest.mark.parametrize(("key", "value", "shown", "expected", "near"), ILL)
@pytest.mark.parametrize("where", ["flag", "file"])
def test_an_ill_typed_value_is_told_in_full(
    tmp_path: Path, key: str, value: object, shown: str, expected: str, near: str | None, where: str
) -> None:
    file = write(tmp_path, yaml.safe_dump({key: value}))
    given_ = {"settings": {key: value}} if where == "flag" else {"file": file}
    with pytest.raises(UsageError) as caught:
        resolve(**given_)  # type: ignore[arg-type]
    words = str(caught.value)
    assert f"{key} is " in words
    assert expected in words
    assert len(words) < 300
    if where == "flag":
        assert shown in words
    else:
        assert "config.yaml" in words
    if near is not None:
        assert f"Did you mean {near}?" in words


UNKNOWN = [
    ("train.step", "train.steps"),
    ("trian.steps", "train.steps"),
    ("steps", "train.steps"),
    ("learning_rate", "optimizer.lr"),
    ("train.ema", "ema.kind"),
    ("model.lr", "optimizer.lr"),
    ("train.clip_grad", "clipping.limit"),
    ("optimiser.lr", "optimizer.lr"),
    ("model.width", "model.widths"),
    ("train.steps.now", "train.steps"),
    ("zzz", None),
    ("", None),
    (".", None),
]


def test_a_setting_of_other_trainers_is_answered_with_what_ours_does() -> None:
    with pytest.raises(UsageError, match=r"train\.early_stopping'\. --set train\.patience=N ends a run after N"):
        resolve(settings={"train.early_stopping": 5})


@pytest.mark.parametrize(("key", "near"), UNKNOWN)
def test_an_unknown_key_is_told_with_the_nearest(key: str, near: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(settings={key: 5})
    words = str(caught.value)
    assert words.startswith(f"There is no setting {key!r}")
    assert words.endswith(f" Did you mean {near!r}?" if near else ".")


@pytest.mark.parametrize("section", [f.name for f in fields(Config)])
def test_a_section_is_no_setting(tmp_path: Path, section: str) -> None:
    with pytest.raises(UsageError, match=rf"{section} is 5 \(in .*\), but it is a section: .* such as {section}\."):
        resolve(file=write(tmp_path, f"{section}: 5"))
    assert resolve(file=write(tmp_path, f"{section}:  # all of it is a comment")) == Config()


def test_an_unknown_preset_is_told_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"--preset is 'digit', which does not exist\. Did you mean 'digits'\?"):
        resolve(preset="digit")


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        (b"", Config().train.steps),
        (b"# nothing but words\n", Config().train.steps),
        (b"train:\n  steps: 5\n", 5),
        (b"\xef\xbb\xbftrain:\n  steps: 5\n", 5),  # a BOM, as Windows writes it
        (b"train:\r\n  steps: 5\r\n", 5),
        (b"train.steps: 5", 5),
        (b'{"train": {"steps": 5}}', 5),  # JSON is YAML
        (b"train: {steps: &a 5, seed: *a}", 5),  # an honest anchor
    ],
)
def test_healthy_files(tmp_path: Path, text: bytes, steps: int) -> None:
    assert resolve(file=write(tmp_path, text)).train.steps == steps


BOMB = "train:\n  steps:\n" + "".join(
    f"    - &a{level} [{', '.join([f'*a{level - 1}' if level else 'lol'] * 10)}]\n" for level in range(30)
)


ATTACKS = [
    ("!!python/object/apply:os.system ['touch pwned']", "not valid YAML"),
    ("train: {steps: !!python/object/apply:os.system ['touch pwned']}", "not valid YAML"),
    ("train: !!python/name:os.system", "not valid YAML"),
    ("train: {steps: !!bool 7}", "not valid YAML"),
    ("train: {steps: !!timestamp 1}", "not valid YAML"),
    ("train: {steps: 5, steps: 6}", "'steps' stands twice"),
    ("train: {steps: 5}\ntrain: {seed: 6}", "'train' stands twice"),
    ("train: {steps: 5}\ntrain.steps: 6\n\0", "not valid YAML"),
    ("\0", "not valid YAML"),
    (b"\xff\xfet\x00r\x00", "not valid YAML"),  # UTF-16
    (b"train: {steps: \xe9}", "not valid YAML"),  # Latin-1
    ("- train\n- steps", "holds a list"),
    ("5", "holds a int"),
    ("just words", "holds a str"),
    ("train: {steps: 5", "not valid YAML"),
    ("train: 5\n---\ntrain: 6", "not valid YAML"),
    ("train: &a {steps: *a}", "not valid YAML"),
    ("train: {steps: &a [*a]}", "not valid YAML"),
    ("? [a, b]\n: 5", "not valid YAML"),
    ("train: {steps: 2020-99-99}", "not valid YAML"),
    ("train: {steps: 2020-01-01}", "whole number"),
    ("train: {steps: " + "9" * 5000 + "}", "not valid YAML"),
    ("train: {steps: .nan}", "whole number"),
    ("optimizer: {lr: .inf}", "a number"),
    ("[\n" * 2000, "not valid YAML"),
    (BOMB, "whole number"),
    (BOMB.replace("train", "diffusion").replace("steps", "schedule"), "one of cosine"),
    (BOMB.replace("train", "model").replace("steps", "widths"), "list of whole numbers"),
    ("\n".join(f"a{i}: 5" for i in range(1000)), "no setting 'a0'"),
]


@pytest.mark.parametrize(("text", "words"), ATTACKS, ids=range(len(ATTACKS)))
def test_hostile_and_broken_files_end_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | bytes, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        resolve(file=write(tmp_path, text))
    assert words in str(caught.value)
    assert len(str(caught.value)) < 600
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.yaml"], "nothing was executed"


def test_the_attack_works_on_a_careless_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: the same bytes do run code where YAML is loaded without care."""
    monkeypatch.chdir(tmp_path)
    yaml.unsafe_load(ATTACKS[0][0])
    assert (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: p.write_bytes(b"# " * 25_000_000), f"more than {LARGEST_FILE:,} bytes"),
        (lambda p: p.symlink_to("/dev/zero"), f"more than {LARGEST_FILE:,} bytes"),
        (lambda p: p.mkdir(), "cannot be read: Is a directory"),
        (lambda p: None, "cannot be read: No such file"),
        (lambda p: p.symlink_to(p.name), "cannot be read: Too many levels"),
    ],
    ids=["50 MB", "endless", "folder", "missing", "circle"],
)
def test_files_that_are_none(tmp_path: Path, make, words: str) -> None:
    file = tmp_path / "config.yaml"
    make(file)
    with pytest.raises(UsageError) as caught:
        resolve(file=file)
    assert words in str(caught.value)


@pytest.mark.parametrize("preset", [None, *PRESETS])
def test_yaml_goes_round(tmp_path: Path, preset: str | None) -> None:
    config = resolve(
        preset=preset,
        settings={"optimizer.lr": "1e-4", "train.accumulate": "auto", "model.attention": "", "data.source": "5: {"},
    )
    assert resolve(file=write(tmp_path, to_yaml(config))) == config
    assert yaml.safe_load(to_yaml(config)) == to_dict(config)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    lr=st.floats(1e-300, 1e300),
    source=st.text(st.characters(blacklist_categories=("Cs",)), max_size=20),
    seed=st.integers(-(2**70), 2**70),
    widths=st.lists(st.integers(1, 10**9), min_size=1, max_size=4),
)
def test_any_values_go_round(
    tmp_path_factory: pytest.TempPathFactory, lr: float, source: str, seed: int, widths: list[int]
) -> None:
    config = resolve(settings={"optimizer.lr": lr, "data.source": source, "train.seed": seed, "model.widths": widths})
    file = tmp_path_factory.getbasetemp() / "round.yaml"
    file.write_bytes(to_yaml(config).encode())
    assert resolve(file=file) == config


def test_flatten_and_back() -> None:
    flat = flatten(to_dict(Config()))
    assert set(flat) == set(types_of_fields())
    assert resolve(settings=flat) == Config()


def test_difference_names_what_changed() -> None:
    old, new = Config(), resolve(settings={"train.steps": 5, "model.widths": "16"})
    assert difference(old, new) == {"train.steps": (old.train.steps, 5), "model.widths": (list(old.model.widths), [16])}
    assert difference(old, Config()) == {}


@pytest.mark.parametrize(
    ("settings", "attention"),
    [
        ({"data.image_size": 64}, (16,)),
        ({"data.image_size": 48}, (12,)),
        ({"data.image_size": 64, "model.attention": (32,)}, (32,)),
        ({"data.image_size": 64, "model.widths": (32, 64, 64, 64)}, (8,)),
        ({"train.steps": 5}, (8,)),
    ],
)
def test_attention_stays_on_its_level_when_the_images_change_size(
    settings: dict[str, object], attention: tuple[int, ...]
) -> None:
    assert resolve(preset="tiny", settings=settings).model.attention == attention
