"""A setting has an effect, makes its choice, or is refused in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from safelight.config.check import check
from safelight.config.effect import choice_of, refuse_own_model, value_at
from safelight.config.presets import PRESETS
from safelight.config.resolve import flatten, resolve, to_yaml, types_of_fields
from safelight.config.tree import EFFECTIVE_ONLY_WITH, OF_THE_UNET
from safelight.errors import UsageError
from tools.config_reference import sections


def test_every_name_in_the_table_is_a_setting() -> None:
    names = {
        *EFFECTIVE_ONLY_WITH,
        *OF_THE_UNET,
        *(key for values in EFFECTIVE_ONLY_WITH.values() for keys in values.values() for key in keys),
    }
    assert names - types_of_fields().keys() == set()


def test_settings_that_say_what_they_belong_to_are_in_the_table() -> None:
    """Their help begins with the choice: “`adaptive`: memory of the running norm”."""
    helps = {f"{section}.{name}": text for section, (_, texts) in sections().items() for name, text in texts.items()}
    choices = {f"`{value}`:" for values in EFFECTIVE_ONLY_WITH.values() for value in values if isinstance(value, str)}
    said = {key for key, text in helps.items() if text.startswith(tuple(choices)) and not key.endswith(".kind")}
    assert "ema.decay" in said
    assert {key for key in said if choice_of(key) is None} == set()


@pytest.mark.parametrize(
    ("key", "value", "choice", "wanted"),
    [
        ("ema.decay", 0.999, "ema.kind", "exponential"),
        ("ema.decay", 0.9999, "ema.kind", "exponential"),  # the default, and yet somebody asked for it
        ("ema.warmup", False, "ema.kind", "exponential"),
        ("clipping.factor", 3, "clipping.kind", "adaptive"),
        ("diffusion.min_snr_gamma", 5, "diffusion.weighting", "min-snr"),
        ("diffusion.huber_delta", 0.2, "diffusion.loss", "huber"),
    ],
)
def test_a_setting_alone_chooses_what_it_belongs_to(key: str, value: Any, choice: str, wanted: str) -> None:
    said: list[str] = []
    config = resolve(settings={key: value}, say=said.append)
    assert value_at(config, choice) == wanted
    assert said == [f"{key} belongs to {choice} {wanted}, which is chosen."]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ema.kind": "power", "ema.decay": 0.5}, "ema.decay has no effect while ema.kind is power: it belongs to exp"),
        ({"ema.width": 0.2, "ema.kind": "exponential"}, "ema.width has no effect while ema.kind is exponential"),
        ({"clipping.kind": "none", "clipping.limit": 2}, "Set clipping.kind=fixed, or leave it out"),
        ({"clipping.kind": "fixed", "clipping.decay": 0.99, "clipping.factor": 3}, "clipping.factor has no effect"),
        ({"ema.decay": 0.5, "ema.width": 0.2}, "belong to different values of ema.kind"),
    ],
)
def test_what_cannot_have_an_effect_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        resolve(settings=settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sample.guidance": 3}, "sample.guidance has no effect while model.conditional is false: it belongs to true."),
        ({"heal.budget": 2}, "heal.budget has no effect while heal.enabled is false: it belongs to true."),
    ],
)
def test_a_switch_is_not_turned_on_by_itself(settings: dict[str, Any], words: str) -> None:
    assert words in check(resolve(settings=settings))


@pytest.mark.parametrize(
    "settings",
    [
        {"ema.kind": "exponential", "ema.decay": 0.5},
        {"ema.width": 0.05},
        {"clipping.limit": 2},
        {"model.conditional": True, "sample.guidance": 3, "model.label_drop": 0.2},
        {"sample.guidance": 1},
        {"heal.enabled": True, "heal.budget": 2},
    ],
)
def test_what_has_an_effect_is_left_alone(settings: dict[str, Any]) -> None:
    said: list[str] = []
    config = resolve(settings=settings, say=said.append)
    assert said == []
    assert [text for text in check(config) if "no effect" in text] == []
    assert {key: value_at(config, key) for key in settings} == settings


def test_a_file_with_every_setting_is_read_as_it_is(tmp_path: Path) -> None:
    """`config.yaml` of a run; also of one from before this was checked, which is warned about and no more."""
    file = tmp_path / "config.yaml"
    for key, value in {"ema.decay": 0.9999, "clipping.factor": 3.0}.items():
        config = resolve(preset="tiny")
        name = key.partition(".")[2]
        file.write_text(to_yaml(config).replace(f"  {name}: {value_at(config, key)}", f"  {name}: {value}", 1))
        read = resolve(file=file)
        assert (value_at(read, key), read.ema.kind, read.clipping.kind) == (value, "power", "fixed")
        warned = [text for text in check(read) if "has no effect" in text]
        assert bool(warned) == (key == "clipping.factor")


def test_a_file_that_sets_it_alone_chooses(tmp_path: Path) -> None:
    file = tmp_path / "short.yaml"
    file.write_text("ema:\n  decay: 0.99\n")
    assert resolve(file=file).ema.kind == "exponential"


def test_presets_have_no_setting_without_effect() -> None:
    assert [text for name in PRESETS for text in check(resolve(preset=name)) if "no effect" in text] == []
    assert [key for name in PRESETS for key in flatten(PRESETS[name]) if choice_of(key)] == []


def test_a_model_of_ones_own_has_no_width() -> None:
    refuse_own_model({"model.conditional": True, "ema.width": 0.1})
    with pytest.raises(UsageError, match=r"model\.dropout would have no effect: the model is your own"):
        refuse_own_model({"model.dropout": 0.1})
