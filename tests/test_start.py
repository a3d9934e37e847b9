"""A run that was interrupted anywhere ends with the bytes it would have had."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import Crash, Own, Quiet, fingerprints, tiny

from safelight import opened, start
from safelight.checkpoints.folder import steps
from safelight.checkpoints.reader import load
from safelight.errors import CheckpointError, RunBusy, UsageError
from safelight.files import RunLock
from safelight.record.reading import read_signal

VARIANTS = {
    "accumulated": {"train__accumulate": 4},
    "workers": {"data__workers": 4, "data__flip": True},
    "dropout": {"model__dropout": 0.3},
    "adaptive clipping": {"clipping__kind": "adaptive"},
    "exponential": {"ema__kind": "exponential"},
    "conditional": {"model__conditional": True},
    "spectral norm": {"model__spectral_norm": True},
    "bf16": {"train__precision": "bf16"},
    "flow": {"diffusion__process": "flow", "diffusion__prediction": "flow", "diffusion__density": "logit-normal"},
    "edm": {"diffusion__process": "edm", "diffusion__prediction": "edm", "diffusion__density": "log-normal"},
    "several epochs in a batch": {
        "train__batch_size": 2048,
        "train__steps": 3,
        "checkpoint__every": 1,
        "model__widths": "8",
        "model__norm_groups": 4,
    },
}


pytestmark = pytest.mark.usefixtures("every_save", "no_report")


def train(folder: Path, crash_after: int | None = None, **settings: object) -> Path:
    terminal = Quiet(crash_after=crash_after)
    if crash_after is None:
        start.train(tiny(**settings), run=folder, terminal=terminal)
    else:
        with pytest.raises(Crash):
            start.train(tiny(**settings), run=folder, terminal=terminal)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The undisturbed run and what crashes after steps 5 and 10 left of it, trained once."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("safelight.monitors.reading_buffer.HOST_SECONDS", 0.0)
        patch.setattr("safelight.runner.write_report", lambda _: None)
        train(folder / "whole")
        train(folder / "broken", crash_after=5)
        train(folder / "broken late", crash_after=10)
    return folder


@pytest.fixture
def whole(runs: Path) -> Path:
    """Read it only."""
    return runs / "whole"


@pytest.fixture
def broken(runs: Path, tmp_path: Path) -> Path:
    return shutil.copytree(runs / "broken", tmp_path / "broken")


@pytest.fixture
def broken_late(runs: Path, tmp_path: Path) -> Path:
    return shutil.copytree(runs / "broken late", tmp_path / "broken late")


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS.keys())
def test_resumed_run_ends_with_the_same_bytes(settings: dict[str, Any], tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", **settings)
    steps = int(settings.get("train__steps", 12))
    broken = train(tmp_path / "broken", crash_after=steps * 5 // 12 or 1, **settings)
    start.resume(broken, terminal=Quiet())
    assert fingerprints(broken) == fingerprints(whole)


def test_resumed_run_without_any_setting_ends_with_the_same_bytes(whole: Path, broken: Path) -> None:
    start.resume(broken, terminal=Quiet())
    assert fingerprints(broken) == fingerprints(whole)


def test_worker_count_changes_nothing(whole: Path, tmp_path: Path) -> None:
    assert fingerprints(whole) == fingerprints(train(tmp_path / "b", data__workers=4))


def test_another_seed_changes_everything(whole: Path, tmp_path: Path) -> None:
    """The negative control: equal hashes are not equal for want of looking."""
    ours, theirs = fingerprints(whole), fingerprints(train(tmp_path / "b", train__seed=1))
    assert all(ours[name] != theirs[name] for name in ours)


def test_forgotten_optimizer_is_noticed(whole: Path, broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: a resume that loses one part of the state ends elsewhere."""
    monkeypatch.setattr("safelight.training.state.load_optimizer", lambda *_: None)
    start.resume(broken, terminal=Quiet())
    assert fingerprints(broken)["model.safetensors"] != fingerprints(whole)["model.safetensors"]


def test_kill_before_the_first_checkpoint_starts_again_in_words(whole: Path, tmp_path: Path) -> None:
    broken = train(tmp_path / "broken", crash_after=2)
    terminal = Quiet()
    start.resume(broken, terminal=terminal)
    assert any("no checkpoint yet" in text for text in terminal.said)
    assert fingerprints(broken) == fingerprints(whole)


def test_damaged_newest_checkpoint_is_passed_over_in_words(whole: Path, broken_late: Path) -> None:
    broken = broken_late
    newest = broken / "checkpoints" / "step_00000008" / "model.safetensors"
    content = bytearray(newest.read_bytes())
    content[-5] ^= 1
    newest.write_bytes(content)
    terminal = Quiet()
    start.resume(broken, terminal=terminal)
    assert any("step_00000008" in text for text in terminal.said)
    assert any("step_00000004 at step 4" in text for text in terminal.said)
    assert fingerprints(broken) == fingerprints(whole)


def test_nothing_verifies_is_never_step_0(broken_late: Path) -> None:
    for manifest in (broken_late / "checkpoints").glob("*/manifest.json"):
        manifest.write_text("{}")
    with pytest.raises(CheckpointError):
        start.resume(broken_late, terminal=Quiet())


def test_record_has_every_step_once_after_resume(whole: Path, broken_late: Path) -> None:
    broken = broken_late
    start.resume(broken, terminal=Quiet())
    for name in ("loss/mean", "loss/whitened", "gradient/part/conv_in"):
        readings = read_signal(broken / "record.sqlite", name)
        assert [step for step, _ in readings] == list(range(12))
        assert readings == read_signal(whole / "record.sqlite", name)


def test_second_process_on_one_folder_is_refused(broken: Path) -> None:
    with RunLock(broken), pytest.raises(RunBusy):
        start.resume(broken, terminal=Quiet())


def test_changed_meaning_is_refused_and_told(broken: Path) -> None:
    terminal = Quiet()
    with pytest.raises(UsageError, match=r"optimizer\.lr"):
        start.resume(broken, settings={"optimizer.lr": 0.5}, terminal=terminal)
    assert any("optimizer.lr from 0.001 to 0.5" in text for text in terminal.said)
    start.resume(broken, settings={"optimizer.lr": 0.5}, force=True, terminal=Quiet())
    assert opened.read_config(start.open_run(broken)).optimizer.lr == 0.5


@pytest.mark.parametrize("settings", [{"checkpoint.every": 3}, {"sample.every": 5}, {"data.workers": 2}])
def test_harmless_changes_keep_the_bytes(settings: dict[str, object], whole: Path, broken: Path) -> None:
    start.resume(broken, settings=settings, terminal=Quiet())
    assert fingerprints(broken) == fingerprints(whole)


def test_run_folder_can_be_moved(whole: Path, broken: Path, tmp_path: Path) -> None:
    moved = broken.rename(tmp_path / "elsewhere")
    start.resume(moved, terminal=Quiet())
    assert fingerprints(moved) == fingerprints(whole)


def test_finished_run_says_so_and_touches_nothing(runs: Path, tmp_path: Path) -> None:
    whole = shutil.copytree(runs / "whole", tmp_path / "whole")
    before = fingerprints(whole)
    terminal = Quiet()
    start.resume(whole, terminal=terminal)
    assert any("nothing is left to train" in text for text in terminal.said)
    assert fingerprints(whole) == before


def test_retention_keeps_the_last_the_best_and_every_kth(tmp_path: Path) -> None:
    run = train(tmp_path / "run", checkpoint__every=2, checkpoint__keep_last=2, checkpoint__keep_every=6)
    best = load(run / "checkpoints" / "step_00000012").state["best_step"]
    assert set(steps(run / "checkpoints")) == {6, 10, 12, best}


def test_checkpoint_of_another_model_is_told_in_words(broken: Path) -> None:
    with pytest.raises(CheckpointError, match="not of this model"):
        start.resume(broken, settings={"model.layers": 2}, force=True, terminal=Quiet())


def test_own_module_trains_and_resumes(tmp_path: Path) -> None:
    def model() -> torch.nn.Module:
        torch.manual_seed(0)
        return Own()

    start.train(tiny(), run=tmp_path / "whole", model=model(), terminal=Quiet())
    with pytest.raises(Crash):
        start.train(tiny(), run=tmp_path / "broken", model=model(), terminal=Quiet(crash_after=5))
    start.resume(tmp_path / "broken", model=model(), terminal=Quiet())
    assert fingerprints(tmp_path / "broken") == fingerprints(tmp_path / "whole")
