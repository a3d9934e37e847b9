"""The callback of Lightning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from loops import Denoiser, batches
from torch import Tensor, nn

from safelight.errors import UsageError
from safelight.record.reading import open_reader, read_signal


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
    assert json.loads((tmp_path / "run" / "run.json").read_text())["steps"] == 6 // accumulate
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
