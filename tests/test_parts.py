"""Every part of the package stands alone, is listed and typed, and its example on the page runs."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import safelight
from safelight.errors import CheckpointError, UsageError

PAGE = (Path(__file__).parents[1] / "docs" / "parts.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## safelight\.(\w+)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))


def example(part: str) -> str:
    return re.findall(r"^```python\n(.*?)^```", SECTIONS[part], re.M | re.S)[0]


@pytest.mark.parametrize("part", SECTIONS)
def test_the_example_of_a_part_runs(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = example(part)
    assert f"sl.{part}(" in code
    assert len(code.split("\n\n", 2)[2].splitlines()) <= 16, "ten lines or so, below the imports"
    exec(compile(code, f"docs/parts.md, {part}", "exec"), {})


@pytest.mark.parametrize("part", SECTIONS)
def test_a_part_is_listed_and_has_a_docstring(part: str) -> None:
    assert part in dir(safelight)
    assert part in safelight.__all__
    assert getattr(safelight, part).__doc__
    assert f"[`safelight.{part}`]" in PAGE.partition("\n## ")[0]


def test_listing_the_package_imports_nothing() -> None:
    script = "import sys, safelight; assert 'EMA' in dir(safelight); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_everything_that_is_listed_exists() -> None:
    assert [name for name in safelight.__all__ if not hasattr(safelight, name)] == []


# What readers of a tutorial write at first.

NETWORK = nn.Conv2d(1, 1, 3, padding=1)
IMAGES = torch.rand(128, 1, 8, 8) * 2 - 1
ALPHAS = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda _: safelight.EMA(NETWORK.parameters()), "made of a model, and this is a generator: EMA.model"),
        (lambda path: safelight.Checkpoints(path).save(1, model=NETWORK.state_dict()), "Pass what it is the state of"),
        (lambda path: safelight.Checkpoints(path).save(1, epoch=3), "epoch is an int, .* go into extra="),
        (lambda path: safelight.SampleGrid(path, lambda m, x: x, shape=(1, 8, 8)).save(NETWORK, 2), "save.step, model"),
        (lambda _: safelight.estimate(NETWORK, 16, 64), "shape is 16. Give that of a batch"),
        (lambda _: safelight.check(NETWORK, ALPHAS, DataLoader(TensorDataset(IMAGES))), "next.iter.loader"),
        (lambda _: safelight.check(NETWORK, 1000, IMAGES), "This is an int, which says nothing"),
        (lambda _: safelight.check(NETWORK, torch.linspace(1e-4, 0.02, 1000), IMAGES), "they look like betas"),
    ],
)
def test_a_wrong_call_is_answered_in_words(write: Callable[[Path], object], words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        write(tmp_path / "new")


def test_a_schedule_in_reverse_is_not_taken_for_betas() -> None:
    from safelight.diffusion.schedulers import declaration_of

    assert declaration_of(ALPHAS.flip(0)).alphas is not None


def test_a_checkpoint_of_another_model_is_refused_in_words_of_a_plain_loop(tmp_path: Path) -> None:
    saves = safelight.Checkpoints(tmp_path)
    saves.save(1, model=NETWORK)
    with pytest.raises(CheckpointError, match="Load it into a model of the same kind and size"):
        saves.load(model=nn.Conv2d(1, 2, 3))


def test_a_clipper_takes_a_model_as_well_as_its_parameters() -> None:
    limits = []
    for given in (NETWORK, NETWORK.parameters()):
        NETWORK.zero_grad()
        NETWORK(IMAGES[:2]).sum().backward()
        clip = safelight.AdaptiveClipper(given, initial=0.5)
        limits.append((clip().item(), clip.limit.item()))
    assert limits[0] == limits[1]
    assert limits[0][1] == 0.5


def test_parts_show_what_they_hold(tmp_path: Path) -> None:
    parts = {
        safelight.EMA(NETWORK): "EMA(updates=0, next_decay=0.405396)",
        safelight.AdaptiveClipper(NETWORK): "AdaptiveClipper(limit=10, running=0)",
        safelight.FiniteGuard(NETWORK, torch.optim.SGD(NETWORK.parameters())): "FiniteGuard(refused=0, "
        "first_nonfinite=None)",
        safelight.Checkpoints(tmp_path / "c"): f"Checkpoints('{tmp_path}/c', steps=[])",
        safelight.SampleGrid(tmp_path / "s", lambda m, x: x): f"SampleGrid('{tmp_path}/s', noise=16, steps=[])",
    }
    assert {repr(part) for part in parts} == set(parts.values())


def test_class_names_of_the_tutorial_lead_to_the_parts() -> None:
    page = (Path(__file__).parents[1] / "docs" / "tutorial.md").read_text(encoding="utf-8")
    for name, here in safelight._TUTORIAL_NAMES.items():
        with pytest.raises(AttributeError, match=f"It is {re.escape(here)} here"):
            getattr(safelight, name)
        assert f"`{name}" in page, name
        module, _, last = here.partition("(")[0].rpartition(".")
        assert hasattr(importlib.import_module(module), last), here
