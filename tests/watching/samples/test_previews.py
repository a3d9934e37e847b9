"""A watched loop has pictures, evaluations and a best step, and trains to the same bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import safelight
from safelight.evaluate.features import own_extractor
from safelight.observing import sample_check, sample_judge
from safelight.record.history import open_history
from safelight.record.reading import read_events, read_signal

ALPHAS = torch.cumprod(1 - torch.linspace(1e-3, 0.2, 100), 0)
DATA = torch.rand(128, 1, 8, 8, generator=torch.Generator().manual_seed(7)) * 2 - 1


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.Dropout(0.2), nn.SiLU(), nn.Conv2d(8, 1, 3, padding=1)
        )

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.body(x)


class Fields(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.adaptive_avg_pool2d(x, 4).flatten(1)


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another network than the real one."""
    eye = own_extractor(Fields(), name="fields", side=8)
    for module in (sample_judge, sample_check):
        monkeypatch.setattr(module, "load_extractor", lambda *_, **__: eye)


def sampler(model: nn.Module, noise: Tensor) -> Tensor:
    model.train()  # as careless ones do
    for t in (60, 30, 0):
        noise = noise - 0.2 * model(noise, torch.full((len(noise),), t)) + 0.01 * torch.randn_like(noise)
    return noise + float(np.random.rand()) * 1e-3


def loop(path: Path | None, *, steps: int = 8, said: list[str] | None = None, **given: Any) -> tuple[list[bytes], Any]:
    torch.manual_seed(0)
    model = Net()
    model.body[1].eval()
    ema, optimizer = safelight.EMA(model, decay=0.9), torch.optim.AdamW(model.parameters(), 1e-3)
    watch, stats = None, {}
    if path is not None:
        arguments: dict[str, Any] = {"ema": ema, "sampler": sampler, "data": DATA, "steps": steps} | given
        words = [] if said is None else said
        watch = safelight.watch(
            model, optimizer, run=path, process=ALPHAS, prediction="epsilon", say=words.append, **arguments
        )
    for _ in range(steps):
        x0 = DATA[torch.randint(0, 128, (16,))]
        noise, t = torch.randn_like(x0), torch.randint(0, 100, (16,))
        kept = ALPHAS[t].view(-1, 1, 1, 1)
        x_t = kept.sqrt() * x0 + (1 - kept).sqrt() * noise
        loss = (model(x_t, t) - noise).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        ema.update()
        if watch is not None:
            stats = watch.step(loss, t=t, x0=x0, noise=noise, x_t=x_t)
    modes = bytes(module.training for module in model.modules())
    tensors = [*model.state_dict().values(), *ema.shadow_params, torch.get_rng_state()]
    if watch is not None:
        assert stats is watch.stats
        watch.image("my own/picture", DATA[:4])
        watch.image("broken", "no image")
        watch.log({"mine/number": 3.0})
        watch.close()
    return [tensor.detach().numpy().tobytes() for tensor in tensors] + [modes], watch


def test_pictures_evaluations_and_the_same_bytes(tmp_path: Path) -> None:
    said: list[str] = []
    alone, _ = loop(None)
    watched, watch = loop(tmp_path / "run", said=said, sample_every=2, evaluate_every=4, target_distance=1e4)
    assert watched == alone
    record = tmp_path / "run" / "record.sqlite"
    with open_history(record) as history:
        found = [(picture.kind, picture.step) for picture in history.pictures()]
        names = {str(picture.path) for picture in history.pictures()}
    for kind in ("samples", "denoising", "raw_and_averaged"):
        assert [step for each, step in found if each == kind] == [2, 4, 6, 8]
    assert [step for each, step in found if each in ("timelapse", "my own/picture")] == [8, 8]
    assert "samples/own_my_own_picture_00000008.png" in names
    for signal in ("quality/distance", "quality/distance_error", "diversity/variance", "copies/share"):
        assert [step for step, _ in read_signal(record, signal)] == [3, 7], signal
    assert read_signal(record, "check/pictures/apart")
    assert [facts["after"] for _, _, facts in read_events(record, "appearance")] == [2, 4, 6, 8]
    assert read_signal(record, "quality/target_distance") == [(3, 1e4), (7, 1e4)]
    assert "The target distance of 10000 was reached at step 4." in (watch.diagnosis.samples or "")
    assert watch.best_step in (4, 8)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["best_step"] == watch.best_step
    assert any("came a str" in text for text in said), "what cannot be drawn is reported"
    assert watch.stats["loss"] > 0
    assert watch.report() == tmp_path / "run" / "report.html"
    assert "mine/number" in (tmp_path / "run" / "report.html").read_text()


def test_without_data_the_images_that_are_trained_on_are_real_ones(tmp_path: Path) -> None:
    _, watch = loop(tmp_path / "run", steps=20, data=None, evaluate_every=20)
    assert watch.best_step == 20
    [(_, _, facts)] = read_events(tmp_path / "run" / "record.sqlite", "evaluated")
    assert 256 <= facts["reference_count"] <= 320


def test_a_loop_without_an_ema_is_not_told_of_one(tmp_path: Path) -> None:
    said: list[str] = []
    loop(tmp_path / "run", said=said, ema=None, sample_every=2)
    assert not [text for text in said if "EMA" in text]
    with open_history(tmp_path / "run" / "record.sqlite") as history:
        assert "raw_and_averaged" not in {picture.kind for picture in history.pictures()}


def test_an_ema_that_comes_later_is_sampled_from_when_it_is_there(tmp_path: Path) -> None:
    said: list[str] = []
    first = tmp_path / "run" / "samples" / "step_00000004.png"

    def ema() -> Any:
        return safelight.EMA(Net(), decay=0.9) if first.exists() else None

    loop(tmp_path / "run", said=said, ema=ema, sample_every=2)
    assert not [text for text in said if "matched" in text]
    with open_history(tmp_path / "run" / "record.sqlite") as history:
        assert [each.step for each in history.pictures("raw_and_averaged")] == [6, 8]


def test_an_ema_of_something_else_is_reported(tmp_path: Path) -> None:
    said: list[str] = []
    loop(tmp_path / "run", said=said, ema=lambda: nn.Linear(2, 2), sample_every=2)
    assert len([text for text in said if "could not be matched" in text and "raw weights" in text]) == 1


def test_within_its_budget_a_short_loop_draws_its_last_picture_only(tmp_path: Path) -> None:
    loop(tmp_path / "run")
    with open_history(tmp_path / "run" / "record.sqlite") as history:
        assert history.pictures("samples")[-1].step == 8
    assert not read_signal(tmp_path / "run" / "record.sqlite", "quality/distance")
    loop(tmp_path / "none", sample_every=0)
    assert not (tmp_path / "none" / "samples" / "step_00000008.png").exists()


def test_a_sampler_that_takes_too_long_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def endless(model: nn.Module, noise: Tensor) -> Tensor:
        while len(calls) < 10**6:
            calls.append(1)
            model(noise, torch.zeros(len(noise)))
        return noise

    monkeypatch.setattr("safelight.watching.samples.previews.LAST_PICTURE_SECONDS", 0.05)
    monkeypatch.setattr("safelight.probes.runner.start.measure_sampler", lambda *_: {})
    loop(tmp_path / "run", sampler=endless)
    assert 0 < len(calls) < 10**6
    assert not list((tmp_path / "run").glob("samples/step_*"))


def test_a_sampler_that_fails_is_reported_and_costs_the_loop_nothing(tmp_path: Path) -> None:
    said: list[str] = []

    def failing(model: nn.Module, noise: Tensor) -> Tensor:
        raise RuntimeError("no luck")

    watched, _ = loop(tmp_path / "run", said=said, sampler=failing, sample_every=1)
    assert watched == loop(None)[0]
    assert sum("no luck" in text and "your training continues" in text for text in said) == 1
    assert len(read_events(tmp_path / "run" / "record.sqlite", "no_picture")) == 4  # three, and the broken image


@pytest.mark.parametrize("late", [False, True])
def test_a_sampler_for_the_checks_alone_is_no_news_also_after_a_draw_that_took_too_long(
    late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not call the model with all that it takes, and nothing was promised of pictures."""
    draws: list[int] = []

    def draw(*_: Any, **__: Any) -> None:
        draws.append(1)
        raise TimeoutError if late and len(draws) == 1 else TypeError("forward() takes 3 arguments")

    monkeypatch.setattr("safelight.watching.samples.previews.SampleGrid.draw", draw)
    monkeypatch.setattr("safelight.watching.samples.previews.MIN_PICTURE_SECONDS", -1e9)  # always within the budget
    monkeypatch.setattr("safelight.watching.samples.previews.LAST_PICTURE_SECONDS", 1e9)
    monkeypatch.setattr("safelight.watching.samples.previews.Previews._seconds_left", 1e9)
    said: list[str] = []
    loop(tmp_path / "run", said=said, sampler=sampler)
    assert len(draws) == 1 + late
    assert not any("takes 3 arguments" in text for text in said)
