"""What happens to the folder, the lock and the record of a run while it trains is noticed, and nothing is lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny import Quiet, fingerprints, tiny

from safelight import start
from safelight.checkpoints.folder import steps
from safelight.errors import RunFolderLost, RunTaken, UsageError
from safelight.files import RunLock
from safelight.record.reading import read_signal

pytestmark = pytest.mark.usefixtures("no_report")

STEPS = 6


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reading of the device and a heartbeat after every step."""
    monkeypatch.setattr("safelight.monitors.reading_buffer.HOST_SECONDS", 0.0)
    monkeypatch.setattr("safelight.training.step_reporter.HEARTBEAT_SECONDS", -1.0)
    monkeypatch.setattr("safelight.record.store.STORE_SECONDS", 0.0)


def train(run: Path, deed: Callable[[], object] = lambda: None, at: int = 3) -> Quiet:
    terminal = Quiet(on_step=lambda step: deed() if step == at else None)
    start.train(tiny(train__steps=STEPS, checkpoint__every=2), run=run, terminal=terminal)
    return terminal


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    run = tmp_path_factory.mktemp("whole") / "run"
    train(run)
    return fingerprints(run)


@pytest.mark.parametrize("deed", ["moved", "deleted", "unmounted"])
def test_a_folder_that_goes_away_ends_the_run_with_its_state_saved(
    tmp_path: Path, whole: dict[str, str], deed: str
) -> None:
    run, elsewhere = tmp_path / "runs" / "x", tmp_path / "elsewhere"

    def act() -> None:
        if deed == "deleted":
            while run.exists():  # a save may be under way
                shutil.rmtree(run, ignore_errors=True)
        else:
            run.rename(elsewhere)
        if deed == "unmounted":  # the empty folder that it was mounted on is seen again
            shutil.rmtree(elsewhere)
            run.mkdir()

    with pytest.raises(RunFolderLost, match=r"saved in .*Continue with: safelight resume") as lost:
        train(run, act)
    home = {"moved": elsewhere, "deleted": run, "unmounted": run.with_name("x-rescued-1")}[deed]
    assert f"safelight resume {home}" in str(lost.value)
    assert lost.value.exit_code == 1
    assert max(steps(home / "checkpoints")) >= 3
    if deed != "deleted":
        assert not run.exists() or not list(run.iterdir())
    if deed != "unmounted":  # as after a deletion
        start.resume(home, terminal=Quiet())
        assert fingerprints(home) == whole


def test_a_record_that_is_deleted_is_written_again(tmp_path: Path) -> None:
    run = tmp_path / "x"

    def delete() -> None:
        for path in run.glob("record.sqlite*"):
            path.unlink()

    terminal = train(run, delete)
    assert [step for step, _ in read_signal(run / "record.sqlite", "loss/mean")] == list(range(STEPS))
    assert sum("was deleted or replaced" in words for words in terminal.said) == 1


def test_a_record_that_another_file_replaced_is_written_again(tmp_path: Path) -> None:
    run = tmp_path / "x"

    def replace() -> None:
        (run / "record.sqlite").unlink()
        (run / "record.sqlite").write_bytes(b"of somebody else")

    train(run, replace)
    assert [step for step, _ in read_signal(run / "record.sqlite", "loss/mean")] == list(range(STEPS))
    assert [path.read_bytes() for path in run.glob("record.sqlite.aside-*")] == [b"of somebody else"]


def test_a_lock_that_is_removed_is_taken_again(tmp_path: Path, whole: dict[str, str]) -> None:
    run = tmp_path / "x"
    train(run, (run / "lock").unlink)
    assert fingerprints(run) == whole


def test_two_processes_do_not_both_end_well(tmp_path: Path) -> None:
    run, other = tmp_path / "x", RunLock(tmp_path / "x")

    def take_over() -> None:
        (run / "lock").unlink()
        other.__enter__()
        (run / "run.json").write_text('{"status": "of the other"}')

    with pytest.raises(RunTaken, match="writes nothing more"):
        train(run, take_over)
    other.__exit__()
    assert (run / "run.json").read_text() == '{"status": "of the other"}'
    assert max(steps(run / "checkpoints")) < STEPS


def test_settings_and_images_are_compared_with_the_checkpoint(tmp_path: Path, whole: dict[str, str]) -> None:
    run = tmp_path / "x"
    with pytest.raises(RunFolderLost):
        train(run, lambda: run.rename(tmp_path / "y"), at=4)
    run = tmp_path / "y"
    config = (run / "config.yaml").read_text()
    (run / "run.json").write_text("")  # with the fingerprint of the images
    (run / "config.yaml").write_text(config.replace("seed: 0", "seed: 5"))
    said = Quiet()
    with pytest.raises(UsageError, match=r"train\.seed in config\.yaml is not what"):
        start.resume(run, terminal=said)
    assert "Changed since the checkpoint, in config.yaml: train.seed from 0 to 5" in said.said
    start.resume(run, terminal=Quiet(crash_after=None), settings={"train.steps": STEPS}, force=True)
    assert fingerprints(run) != whole
