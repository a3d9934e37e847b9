"""Frameworks that call the loop: closures, Lightning's callback, accelerate's tracker."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loops import Denoiser, batches
from PIL import Image
from torch import Tensor, nn

import safelight
from safelight.errors import UsageError
from safelight.record.reading import open_reader, read_events, read_signal


def closure_loop(run: Path | None, *, named: bool) -> list[bytes]:
    torch.manual_seed(0)
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    watch = None if run is None else safelight.watch(model, optimizer, run=run)
    for x, noise, t in batches(4):

        def closure(x: Tensor = x, noise: Tensor = noise, t: Tensor = t) -> Tensor:
            optimizer.zero_grad()
            loss = (model(x, t) - noise).square().mean()
            loss.backward()
            return loss

        loss = optimizer.step(closure=closure) if named else optimizer.step(closure)
        assert loss is not None
        if watch is not None:
            watch.step(loss)
    if watch is not None:
        watch.close()
    return [p.detach().numpy().tobytes() for p in model.parameters()]


@pytest.mark.parametrize("named", [False, True])
def test_gradients_of_a_closure_are_seen_after_it(tmp_path: Path, named: bool) -> None:
    """Before the closure there are none, or those of the step before."""
    assert closure_loop(tmp_path / "run", named=named) == closure_loop(None, named=named)
    norms = [value for _, value in read_signal(tmp_path / "run" / "record.sqlite", "gradient/norm")]
    torch.manual_seed(0)
    model = Denoiser()
    x, noise, t = batches(1)[0]
    (model(x, t) - noise).square().mean().backward()
    first = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]))
    assert norms[0] == pytest.approx(float(first), rel=1e-5)
    assert len(norms) == 4


def test_numbers_of_ones_own_lie_beside_ours(tmp_path: Path) -> None:
    with safelight.watch(Denoiser(), run=tmp_path / "run") as watch:
        for step in range(3):
            watch.log({"mine/accuracy": step / 2})
            watch.step(torch.tensor(1.0))
        watch.log({"mine/late": 7.0}, step=1)
    path = tmp_path / "run" / "record.sqlite"
    assert read_signal(path, "mine/accuracy") == [(0, 0.0), (1, 0.5), (2, 1.0)]
    assert read_signal(path, "mine/late") == [(1, 7.0)]


# Lightning


def lightning_run(run: Path | None, *, accumulate: int = 1, fail_at: int | None = None, **given: Any) -> list[bytes]:
    lightning = pytest.importorskip("pytorch_lightning", reason="needs Lightning: pip install pytorch-lightning")
    from safelight.watching.lightning import WatchCallback

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Denoiser()

        def training_step(self, batch: Any, number: int) -> dict[str, Tensor]:
            if number == fail_at:
                raise ArithmeticError("something broke")
            x, noise, t = (each[0] for each in batch)
            predicted = self.model(x, t)
            loss = nn.functional.mse_loss(predicted, noise)
            return {"loss": loss, "t": t, "pred": predicted.detach(), "target": noise}

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    torch.manual_seed(0)
    module = Module()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    quiet |= {"enable_model_summary": False, "barebones": False}
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        accumulate_grad_batches=accumulate,
        callbacks=[] if run is None else [WatchCallback(run, **given)],
        **quiet,
    )
    trainer.fit(module, torch.utils.data.DataLoader(batches(6), batch_size=1))
    return [p.detach().numpy().tobytes() for p in module.parameters()]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("accumulate", [1, 2])
def test_lightning_under_watch_trains_the_same_bytes(tmp_path: Path, accumulate: int) -> None:
    assert lightning_run(tmp_path / "run", accumulate=accumulate) == lightning_run(None, accumulate=accumulate)
    path = tmp_path / "run" / "record.sqlite"
    assert [step for step, _ in read_signal(path, "gradient/norm")] == list(range(6 // accumulate))
    losses = [value for _, value in read_signal(path, "loss/mean")]
    assert all(0.7 < loss < 1.5 for loss in losses), "not divided by the number of micro-batches"
    assert {name for (name,) in open_reader(path).execute("SELECT DISTINCT signal FROM reading")} >= {
        "gradient/part/body",
        "update/ratio/out",
    }


@pytest.mark.filterwarnings("ignore")
def test_a_lightning_run_that_fails_says_so(tmp_path: Path) -> None:
    with pytest.raises(ArithmeticError):
        lightning_run(tmp_path / "run", fail_at=3)
    status = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (status["status"], status["error"], status["step"]) == ("crashed", "ArithmeticError: something broke", 3)


@pytest.mark.filterwarnings("ignore")
def test_the_network_inside_of_a_lightning_module_is_heard(tmp_path: Path) -> None:
    given = {"network": "model", "schedule": torch.linspace(0.99, 0.01, 1000), "prediction": "epsilon"}
    assert lightning_run(tmp_path / "run", **given) == lightning_run(None)
    path = tmp_path / "run" / "record.sqlite"
    assert read_signal(path, "check/mode/training") == [(0, 1.0)]
    assert read_signal(path, "check/target/declared") == [(0, 0.0)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("given", "told"),
    [({"network": "unet"}, "has no network 'unet'. It has: model"), ({"skedule": 1}, "does not know 'skedule'")],
)
def test_a_lightning_callback_refuses_in_words(tmp_path: Path, given: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        lightning_run(tmp_path / "run", **given)


# accelerate


def test_a_tracker_takes_all_that_accelerate_gives(tmp_path: Path) -> None:
    from accelerate import Accelerator

    from safelight.watching.tracker import Tracker

    tracker = Tracker(tmp_path / "run")
    accelerator = Accelerator(cpu=True, log_with=tracker)
    accelerator.init_trackers("mine", config={"lr": 0.1, "name": "first"})
    for step in range(3):
        told = {"loss": torch.tensor(step / 4), "bad": math.nan, "note": f"step {step}", "many": torch.ones(2)}
        accelerator.log(told, step=step)
    gray, colour = torch.rand(2, 1, 6, 5), np.full((1, 4, 5, 3), 200, np.uint8)
    for each in accelerator.trackers:
        each.log_images({"gray": gray, "a/colour": colour}, step=2)
    accelerator.end_training()
    path = tmp_path / "run" / "record.sqlite"
    assert read_signal(path, "loss") == [(0, 0.0), (1, 0.25), (2, 0.5)]
    assert all(math.isnan(value) for _, value in read_signal(path, "bad"))
    assert read_events(path, "config") == [(0, "config", {"lr": 0.1, "name": "first"})]
    assert [facts["note"] for _, _, facts in read_events(path, "log")] == ["step 0", "step 1", "step 2"]
    rows = open_reader(path).execute("SELECT kind, step, path, width, height FROM picture ORDER BY kind").fetchall()
    assert [(kind, step, width, height) for kind, step, _, width, height in rows] == [
        ("a/colour/0", 2, 5, 4),
        ("gray/0", 2, 5, 6),
        ("gray/1", 2, 5, 6),
    ]
    with Image.open(tmp_path / "run" / rows[1][2]) as image:
        assert np.array_equal(np.asarray(image), (gray[0, 0] * 255).round().byte().numpy())
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"


def test_a_tracker_does_not_write_over_a_record(tmp_path: Path) -> None:
    from safelight.watching.tracker import Tracker

    first = Tracker(tmp_path / "run")
    first.start()
    first.finish()
    with pytest.raises(UsageError, match="already holds a record"):
        Tracker(tmp_path / "run").start()
