"""A script that knows nothing of Safelight, under watch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.overrides import _get_current_function_mode_stack

import safelight
from safelight.record.history import open_history
from safelight.watching.auto import Captured, StopAfter
from safelight.watching.loop import Watch
from tests.capturing import loops


def test_a_script_that_does_not_train_is_said_to() -> None:
    with safelight.captured() as found:
        pass
    found.finish()
    assert (found.watch, found.updates, found.diagnosis()) == (None, 0, None)
    assert "No training was seen" in found.recognised()[0]


def test_an_unchanged_loop_is_watched(tmp_path: Path) -> None:
    said: list[str] = []
    torch.manual_seed(0)
    expected = [p.detach().clone() for p in loops.train(loops.ddpm_epsilon, steps=8).parameters()]
    torch.manual_seed(0)
    with safelight.captured(run=tmp_path / "run", say=said.append) as found:
        trained = loops.train(loops.ddpm_epsilon, steps=8)
    assert all(map(torch.equal, trained.parameters(), expected))
    assert (found.updates, found.folder) == (8, tmp_path / "run")
    assert found.recognised()[0] == "Net: 314 of 314 parameters in AdamW."
    diagnosis = found.diagnosis()
    assert diagnosis is not None
    assert diagnosis.findings == []
    with open_history(tmp_path / "run" / "record.sqlite") as history:
        names = set(history.signals())
    assert {"check/mixture/process", "check/batch/mean", "check/noise/std", "check/loss/error"} <= names
    assert [line for line in said if "stopped" in line] == []


def test_noise_that_differs_is_found(tmp_path: Path) -> None:
    codes: list[str] = []
    with safelight.captured(
        run=tmp_path / "run", say=lambda _: None, on_finding=lambda finding: codes.append(finding.code)
    ) as found:
        loops.train(loops.fresh_noise, steps=8)
    diagnosis = found.diagnosis()
    assert diagnosis is not None
    assert "TAR004" in [finding.code for finding in diagnosis.findings]
    assert "TAR004" in codes


def test_adapters_that_came_after_the_optimizer_are_found_and_the_loop_stops(tmp_path: Path) -> None:
    with safelight.captured(run=tmp_path / "run", say=lambda _: None, stop_after=3) as found:
        loops.adapted_late(steps=8)
    assert found.updates == 3
    assert found.recognised()[0] == "Net: none of its 19 trained parameters in AdamW."
    diagnosis = found.diagnosis()
    assert diagnosis is not None
    assert [each.code for each in diagnosis.findings] == ["OPT012"]


def test_a_network_that_is_called_in_parts_is_named_as_such(tmp_path: Path) -> None:
    with safelight.captured(run=tmp_path / "run", say=lambda _: None) as found:
        loops.in_parts()
    words = (
        "Conv2d: 152 of 152 parameters in AdamW. It is one part of a ModuleDict of 554: no other part was looked at."
    )
    assert found.recognised()[0] == words


def test_what_another_optimizer_trains_is_not_missing(tmp_path: Path) -> None:
    with safelight.captured(run=tmp_path / "run", say=lambda _: None) as found:
        loops.by_two_optimizers(steps=8)
    diagnosis = found.diagnosis()
    assert diagnosis is not None
    assert diagnosis.findings == []


def test_a_loop_stops_after_so_many_updates(tmp_path: Path) -> None:
    found = Captured(run=tmp_path / "run", stop_after=3, say=lambda _: None).start()
    with pytest.raises(StopAfter):
        loops.train(loops.ddpm_epsilon)
    found.finish(status="ended")
    assert found.updates == 3
    assert isinstance(found.watch, Watch)
    assert found.watch.updates == 3
    assert _get_current_function_mode_stack() == []


@pytest.mark.parametrize("name", ["accumulated", "scaled", "closed", "wrapped"])
def test_every_update_has_its_micro_batches(name: str, tmp_path: Path) -> None:
    with safelight.captured(run=tmp_path / "run", say=lambda _: None) as found:
        getattr(loops, name)()
    with open_history(tmp_path / "run" / "record.sqlite") as history:
        batches, backwards = (
            history.raw(f"check/accumulation/{kind}")[1].tolist() for kind in ("micro_batches", "backwards")
        )
    assert batches == backwards == [3.0 if name == "accumulated" else 1.0]
    diagnosis = found.diagnosis()
    assert diagnosis is not None
    assert diagnosis.findings == []


@pytest.mark.parametrize("is_proven", [True, False])
def test_the_calls_of_accumulated_micro_batches_are_their_own(is_proven: bool, tmp_path: Path) -> None:
    """The next micro-batch has called the network when the one before it is looked at."""
    loss_of = loops.ddpm_epsilon if is_proven else _plain_loss
    torch.manual_seed(0)
    with safelight.captured(run=tmp_path / "run", say=lambda _: None):
        loops.accumulated(loss_of=loss_of, in_training=False)
    with open_history(tmp_path / "run" / "record.sqlite") as history:
        names = set(history.signals())
        numbers = {name: history.raw(f"check/{name}")[1].tolist() for name in OF_CALLS}
    assert {"check/network/zero_weights", "check/network/loudest", "check/network/depends_on_mode"} <= names
    assert numbers["mode/training"] == [0.0]
    assert set(numbers["replay/micro_batches"]) == {3.0}
    assert max(numbers["replay/output_error"]) < 1e-6
    assert numbers["replay/ratio"] == pytest.approx([1.0] * len(numbers["replay/ratio"]), abs=1e-4)


OF_CALLS = ("mode/training", "replay/micro_batches", "replay/output_error", "replay/ratio")


def _plain_loss(model: torch.nn.Module, x0: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """No process at all: x0 is shown as it is."""
    return torch.nn.functional.mse_loss(model(x0, torch.rand(len(x0))), x0.flip(0))


@pytest.mark.parametrize("step", [0, 3])
def test_a_broken_image_is_found_in_the_data(step: int, tmp_path: Path) -> None:
    """Not in the network, whose weights it spoils."""
    seen = 0

    def loss_of(model: torch.nn.Module, x0: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        nonlocal seen
        x0 = x0.clone()
        x0[5] = torch.nan if seen == step else x0[5]
        seen += 1
        return loops.ddpm_epsilon(model, x0 * 1.0, labels)

    with safelight.captured(run=tmp_path / "run", say=lambda _: None) as found:
        loops.train(loss_of, steps=8)
    diagnosis = found.diagnosis()
    assert diagnosis is not None
    assert [finding.code for finding in diagnosis.findings] == ["DAT001"]
    assert diagnosis.findings[0].step == step
    assert any("DDPM" in line for line in found.recognised())


@pytest.mark.parametrize(("declared", "trained", "is_found"), [
    ("v_prediction", "epsilon", True),
    ("epsilon", "v_prediction", True),
    ("epsilon", "epsilon", False),
    ("v_prediction", "v_prediction", False),
    ("sample", "sample", False),
])  # fmt: skip
def test_a_scheduler_that_says_another_prediction_type_is_found(
    declared: str, trained: str, is_found: bool, tmp_path: Path
) -> None:
    with safelight.captured(run=tmp_path / "run", say=lambda _: None, stop_after=5) as found:
        loops.noised_by_scheduler(declared, trained)
    diagnosis = found.diagnosis()
    assert diagnosis is not None
    assert [each.severity for each in diagnosis.findings if each.code == "TAR001"] == ["warning"] * is_found


@pytest.mark.parametrize(("loss", "code"), [
    (loops.with_noise(torch.rand_like), "FOR005"),
    (loops.with_noise(lambda _: loops.ONE_DRAW), "FOR006"),
    (loops.with_noise(torch.randn_like, limit=1.0), "FOR002"),
    (loops.with_noise(loops.of_numpy), None),
], ids=["uniform", "drawn once", "clamped", "of numpy"])  # fmt: skip
def test_noise_that_torch_did_not_draw_is_judged(loss: loops.Loss, code: str | None, tmp_path: Path) -> None:
    torch.manual_seed(0)
    with safelight.captured(run=tmp_path / "run", say=lambda _: None, stop_after=8) as found:
        loops.train(loss, steps=8)
    diagnosis = found.diagnosis()
    assert diagnosis is not None
    assert found.is_known
    assert [each.code for each in diagnosis.findings if each.severity != "info"] == ([] if code is None else [code])
