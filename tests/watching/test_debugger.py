"""`safelight.check`: numbers of a healthy model, the finding of a sick one, and everything left as it was."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import safelight
from safelight.errors import UsageError
from safelight.watching.check_report import CheckReport
from safelight.watching.debugger import check

ALPHAS = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0)


def images(count: int = 24) -> Tensor:
    """Bright squares on black, in [-1, 1]."""
    draw = torch.Generator().manual_seed(5)
    found = -torch.ones(count, 1, 8, 8)
    for each, (row, column) in zip(found, torch.randint(0, 5, (count, 2), generator=draw), strict=True):
        each[0, row : row + 3, column : column + 3] = 0.6 + 0.4 * torch.rand(3, 3, generator=draw)
    return found


class Denoiser(nn.Module):
    def __init__(self, labels: int = 0, width: int = 16) -> None:
        super().__init__()
        self.time, self.enter = nn.Embedding(1000, width), nn.Conv2d(1, width, 3, padding=1)
        self.body = nn.Sequential(nn.SiLU(), nn.Conv2d(width, width, 3, padding=1), nn.SiLU())
        self.leave = nn.Conv2d(width, 1, 3, padding=1)
        self.kinds = nn.Embedding(labels, width) if labels else None

    def condition(self, t: Tensor, labels: Tensor | None) -> Tensor:
        extra = 0 if labels is None or self.kinds is None else self.kinds(labels)
        return (self.time(t) + extra)[:, :, None, None]

    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        return self.leave(self.body(self.enter(x) + self.condition(t, labels)))


def denoiser(**settings: Any) -> Denoiser:
    torch.manual_seed(0)
    return Denoiser(**settings)


def ddim(model: Any, noise: Tensor) -> Tensor:
    x, times = noise, list(range(999, -1, -40))
    with torch.no_grad():
        for place, t in enumerate(times):
            a, b = ALPHAS[t], ALPHAS[times[place + 1]] if place + 1 < len(times) else torch.tensor(1.0)
            answer = model(x, torch.full((len(x),), t))
            x0 = ((x - (1 - a).sqrt() * answer) / a.sqrt()).clamp(-1, 1)
            x = b.sqrt() * x0 + (1 - b).sqrt() * (x - a.sqrt() * x0) / (1 - a).sqrt()
    return x


def codes(report: CheckReport) -> set[str]:
    return {finding.code for finding in report.findings}


def test_a_healthy_model_shows_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    model = denoiser(labels=3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    labels = torch.arange(24) % 3
    report = safelight.check(model, ALPHAS, (images(), labels), sampler=_labelled, optimizer=optimizer)
    assert report.is_ok, str(report)
    assert report.findings == []
    assert {row.state for row in report.rows} == {"ok"}
    parts = list(dict.fromkeys(row.part for row in report.rows))
    assert parts == [
        "output",
        "gradients",
        "timesteps",
        "labels",
        "schedule",
        "images",
        "samples",
        "optimizer",
        "memory",
    ]
    text = capsys.readouterr().out
    for words in ("output at t = 900", "norm of enter", "standard deviation", "alphas_cumprod", "Nothing was found"):
        assert words in text
    kept = json.loads(json.dumps(report.to_json()))
    assert len(kept["rows"]) == len(report.rows)
    assert kept["findings"] == []
    numbers = {(row.part, row.name): row.value for row in report.rows}
    assert numbers["images", "highest"] == pytest.approx(1, abs=0.01)
    assert numbers["schedule", "timesteps"] == 1000


def _labelled(model: Any, noise: Tensor) -> Tensor:
    return ddim(lambda x, t: model(x, t, torch.zeros(len(x), dtype=torch.long)), noise)


def test_what_is_not_given_is_not_looked_at() -> None:
    report = check(denoiser(), None, images(), memory=False, say=None)
    missing = {row.part: row.note for row in report.rows if row.state == "not looked at"}
    assert missing == {
        "labels": "pass batch=(images, labels)",
        "schedule": "pass process",
        "samples": "pass sampler",
        "optimizer": "pass optimizer",
        "memory": "left out: memory=False",
    }
    assert report.is_ok, str(report)


class WithoutTime(Denoiser):
    def condition(self, t: Tensor, labels: Tensor | None) -> Tensor:
        return torch.zeros(len(t), 1, 1, 1)


class WithDeadLayer(Denoiser):
    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        return self.leave(self.body[2](self.enter(x) + self.condition(t, labels)))


class OfOtherShape(Denoiser):
    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        return super().forward(x, t, labels)[:, :, :7]


class Detached(Denoiser):
    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        return super().forward(x, t, labels).detach()


class Bounded(Denoiser):
    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        return super().forward(x, t, labels).tanh()


def sick(kind: type[Denoiser]) -> Denoiser:
    torch.manual_seed(0)
    return kind()


def with_nan() -> Denoiser:
    model = denoiser()
    with torch.no_grad():
        model.leave.weight[0, 0, 0, 0] = torch.nan
    return model


def of_zeros() -> Denoiser:
    model = denoiser()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


def blind_to_labels() -> Denoiser:
    model = denoiser(labels=3)
    model.condition = lambda t, labels: model.time(t)[:, :, None, None]  # type: ignore[method-assign]
    return model


@pytest.mark.parametrize(
    ("make", "given", "code", "part"),
    [
        (with_nan, {}, "MOD010", "output"),
        (lambda: sick(WithoutTime), {}, "MOD007", "timesteps"),
        (lambda: sick(WithDeadLayer), {}, "MOD001", "gradients"),
        (lambda: sick(OfOtherShape), {}, "LOS005", "output"),
        (lambda: sick(Detached), {}, "", "gradients"),
        (lambda: sick(Bounded), {}, "MOD004", ""),
        (of_zeros, {}, "MOD002", ""),
        (blind_to_labels, {"labels": torch.arange(24) % 3}, "CON001", "labels"),
        (denoiser, {"images": (images() + 1) / 2}, "SCA001", "images"),
        (denoiser, {"process": ALPHAS.flip(0)}, "SCH001", "schedule"),
        (denoiser, {"sampler": lambda model, noise: ddim(model, noise) + 0.3 * torch.randn_like(noise)}, "SAM006", ""),
        (denoiser, {"lr": 30.0}, "LRA001", ""),
        (denoiser, {"params": lambda model: model.leave.parameters()}, "OPT004", "optimizer"),
    ],
)
def test_a_sick_model_is_named_and_marked(make: Callable[[], Denoiser], given: Any, code: str, part: str) -> None:
    model = make()
    chosen = given.get("params", lambda model: model.parameters())(model)
    optimizer = torch.optim.Adam(chosen, lr=given.get("lr", 1e-3))
    batch = (given.get("images", images()), given.get("labels"))
    process, sampler = given.get("process", ALPHAS), given.get("sampler")
    report = check(model, process, batch, sampler=sampler, optimizer=optimizer, memory=False, say=None)
    assert not code or code in codes(report), str(report)
    assert not report.is_ok
    assert not part or any(row.part == part and row.state == "finding" and code in row.note for row in report.rows), (
        str(report)
    )
    assert all(finding.fix.text in str(report) for finding in report.findings)


def test_samples_of_the_model_itself_are_judged_where_it_has_learnt() -> None:
    model = denoiser()
    wild = lambda model, noise: ddim(model, noise) * 4  # noqa: E731
    rows = {row.name: row for row in check(model, ALPHAS, images(), sampler=wild, memory=False, say=None).rows}
    assert rows["highest of the model's own"].state == "ok"
    assert "untrained" in rows["highest of the model's own"].note
    optimizer, draw = torch.optim.Adam(model.parameters(), lr=3e-3), torch.Generator().manual_seed(0)
    for _ in range(60):
        x0 = images()
        t, noise = torch.randint(0, 1000, (24,), generator=draw), torch.randn(x0.shape, generator=draw)
        a = ALPHAS[t][:, None, None, None]
        (model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t) - noise).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    rows = {row.name: row for row in check(model, ALPHAS, images(), sampler=wild, memory=False, say=None).rows}
    assert rows["highest of the model's own"].state == "finding"
    failing = check(model, ALPHAS, images(), sampler=lambda model, noise: 1 / 0, memory=False, say=None)
    assert any("ZeroDivisionError" in row.note and row.state == "finding" for row in failing.rows)


class WithState(Denoiser):
    """Has what a pass may change: batch norm, dropout, a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.BatchNorm2d(16), nn.Dropout(0.2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor, t: Tensor, labels: Tensor | None = None) -> Tensor:
        self.calls += 1  # type: ignore[operator]
        random.random()
        np.random.rand()
        return self.leave(self.drop(self.norm(self.enter(x) + self.condition(t, labels))))


def everything(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Any]:
    tensors = [*model.parameters(), *model.buffers(), *(p.grad for p in model.parameters())]
    tensors += [value for entry in optimizer.state.values() for value in entry.values()]
    hooks = [len(each._forward_hooks) + len(each._forward_pre_hooks) for each in model.modules()]
    return [
        [None if each is None else each.detach().clone().numpy().tobytes() for each in tensors],
        [module.training for module in model.modules()],
        [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups],
        hooks,
        torch.get_rng_state().numpy().tobytes(),
        random.getstate(),
        np.random.get_state()[1].tobytes(),  # type: ignore[union-attr]
        torch.is_grad_enabled(),
    ]


def test_everything_is_left_as_it_was() -> None:
    model = WithState()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.optim.lr_scheduler.StepLR(optimizer, 10)
    model(images(), torch.arange(24)).square().mean().backward()
    optimizer.step()
    model.drop.eval()
    batch = images()
    kept, before = batch.clone(), everything(model, optimizer)
    noisy = lambda model, noise: ddim(model.eval(), noise) + 0 * torch.randn(1)  # noqa: E731
    report = check(model, ALPHAS, batch, sampler=noisy, optimizer=optimizer, say=None)
    assert everything(model, optimizer) == before
    assert torch.equal(batch, kept)
    again = check(model, ALPHAS, batch, sampler=noisy, optimizer=optimizer, say=None)
    assert [row.to_json() for row in again.rows if row.part != "memory"] == [
        row.to_json() for row in report.rows if row.part != "memory"
    ]


def test_a_diffusers_scheduler_says_what_is_predicted() -> None:
    from diffusers import DDPMScheduler

    from safelight.watching.debugger import declare

    scheduler = DDPMScheduler(num_train_timesteps=100, prediction_type="v_prediction")
    assert declare(scheduler, None).prediction == "v_prediction"
    assert declare(scheduler, "sample").prediction == "sample"
    assert declare(ALPHAS, None).prediction == "epsilon"
    report = check(denoiser(), scheduler, {"images": images()}, memory=False, say=None)
    assert any(row.name == "timesteps" and row.value == 100 for row in report.rows)


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({"batch": None}, "batch should be"),
        ({"batch": images()[:1]}, "at least two"),
        ({"batch": (images() * 255).byte()}, "as floats"),
        ({"batch": torch.zeros(4, 3, 8, 8)}, "cannot be called"),
        ({"process": object()}, "alphas_cumprod"),
        ({"prediction": "velocity"}, "prediction is"),
        ({"sampler": lambda model: model}, "sampler should be"),
        ({"model": denoiser().requires_grad_(False)}, "requires a gradient"),
    ],
)
def test_what_cannot_be_checked_is_said(named: Any, words: str) -> None:
    given = {"model": denoiser(), "process": ALPHAS, "batch": images()} | named
    with pytest.raises(UsageError, match=words):
        check(**given, memory=False, say=None)


def test_a_model_that_is_called_in_its_own_way() -> None:
    model = denoiser(labels=3)
    report = check(
        model, ALPHAS, images(), call=lambda model, x, t, _: model(x, t=t, labels=torch.zeros_like(t)), say=None
    )
    assert report.is_ok, str(report)
    assert any("way of its own" in row.note for row in report.rows)
