"""What all tests share: one thread, no colour, and one tiny trained run of each kind."""

from __future__ import annotations

import gc
import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch

from safelight.checkpoints.writer import Writer

# `make test` tries the same examples every time; `make test-again` others in every run.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None)
hypothesis.settings.register_profile("random", deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# By the seconds that they take; whoever adds a file that takes long adds it here (pytest --durations=0).
LONGEST: tuple[str, ...] = (
    "tests/processes/test_launcher.py",
    "tests/healing/test_healer.py",
    "tests/test_examples.py",
    "tests/healing/test_going_back.py",
    "tests/processes/test_group.py",
    "tests/test_start.py",
    "tests/pages/server/test_in_browser.py",
    "tests/model/test_memory.py",
    "tests/tools/test_same.py",
    "tests/training/test_preflight.py",
    "tests/processes/test_sharding.py",
    "tests/processes/test_interrupts.py",
    "tests/torture/test_suite.py",
    "tests/cli/test_evaluate.py",
    "tests/gauntlet/test_gauntlet.py",
    "tests/training/test_evaluation.py",
    "tests/data/test_cache.py",
    "tests/tools/test_again.py",
)

TINY = {
    "steps": 6,
    "batch_size": 8,
    "settings": {
        "model.widths": (16,),
        "model.norm_groups": 8,
        "model.layers": 1,
        "model.attention": (),
        "model.conditional": False,
        "sample.steps": 3,
        "sample.count": 4,
        "evaluate.every": 0,
        "train.preflight": "off",
        "ema.snapshots": 2,
    },
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shuffle", type=int, metavar="SEED", help="run files, and the tests of each file, in random order"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest files first, so that no worker is left with one of them at the end; or any order, which is none."""
    seed = config.getoption("--shuffle")
    if seed is None:
        place = {name: number for number, name in enumerate(LONGEST)}
        items.sort(key=lambda item: place.get(item.path.relative_to(config.rootpath).as_posix(), len(place)))
        return
    draw = random.Random(seed)
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    groups = list(files.values())
    draw.shuffle(groups)
    for group in groups:
        draw.shuffle(group)
    items[:] = [item for group in groups for item in group]


def pytest_collectstart(collector: pytest.Collector) -> None:
    """What a file draws while it is imported is the same whatever was imported before."""
    if isinstance(collector, pytest.Module):
        seed_all()


def seed_all() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def pytest_collection_finish() -> None:
    """Collections of garbage need not go through thousands of tests again and again: half of the time of some files."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line on what this machine lacks: a test that was not run must not look like one that passed."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple):
            reasons[report.longrepr[2].removeprefix("Skipped: ")] += 1
    if reasons:
        words = "; ".join(f"{count} ({reason})" for reason, count in sorted(reasons.items()))
        terminalreporter.write_line(f"Not run on this machine: {sum(reasons.values())} tests: {words}")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)  # the machine may be shared, and another number of threads gives other bits


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Prepared images of tests never land in the user's own cache; one cache serves them all."""
    os.environ["SAFELIGHT_CACHE"] = str(tmp_path_factory.getbasetemp() / "cache")


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """What a test draws does not depend on those before it, which come in any order."""
    seed_all()


@pytest.fixture(autouse=True)
def plain_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(autouse=True)
def every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs look at, and show, every step: many tests act on what they are shown."""
    monkeypatch.setattr("safelight.monitors.reading_buffer.HOST_SECONDS", 0.0)


@pytest.fixture(scope="session")
def train_tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Trains a run of six steps with changed settings and returns its folder."""

    def train(name: str, **settings: object) -> Path:
        import safelight

        path = tmp_path_factory.mktemp("runs") / name
        kept: dict[str, object] = {**TINY["settings"], **settings}  # type: ignore[dict-item]
        return safelight.train(run=path, steps=TINY["steps"], batch_size=TINY["batch_size"], settings=kept).path

    return train


@pytest.fixture(scope="session")
def trained_run(train_tiny: Callable[..., Path]) -> Path:
    """A finished run without labels. Read it; copy it before changing anything."""
    return train_tiny("plain")


@pytest.fixture(scope="session")
def conditional_run(train_tiny: Callable[..., Path]) -> Path:
    """A finished run with labels. Read it; copy it before changing anything."""
    return train_tiny("conditional", **{"model.conditional": True})


@pytest.fixture
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ends makes no page of itself, where a file trains many runs and reads none of their pages."""
    monkeypatch.setattr("safelight.runner.write_report", lambda _: None)


@pytest.fixture
def every_save(monkeypatch: pytest.MonkeyPatch) -> None:
    """No save is skipped because the one before it is still on its way to a slow disk."""
    monkeypatch.setattr(Writer, "busy", property(lambda self: bool(self.wait())))
