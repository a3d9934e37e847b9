"""A run in Python and in a notebook: its samples, numbers, findings, distance, pipeline and report."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from safelight.assessment import Assessment, FeatureChoice, assess_run
from safelight.config import Config
from safelight.diagnosis import Diagnosis, diagnose_run
from safelight.diagnosis.doctor import Findings, diagnose
from safelight.export import export_pipeline
from safelight.files import MAX_PICTURE_BYTES
from safelight.generate import Request, columns_for, generate
from safelight.keys import derive_seed
from safelight.opened import LoadedModel, find_label, load_model
from safelight.outputs import check_output, write_output
from safelight.pages.data.gallery import locate
from safelight.pages.data.run_files import read_bytes
from safelight.pages.report.html import REPORT, make_report, write_report
from safelight.pictures.grid import encode, grid, to_uint8
from safelight.record.dump import choose_signals, describe
from safelight.record.history import open_history
from safelight.run import open_run
from safelight.vocabulary import LOSS

if TYPE_CHECKING:
    import pandas  # pyright: ignore[reportMissingImports]

SPARKLINE = (260, 42)  # pixels
EVALUATED = 2000  # samples


class Samples(Tensor):
    """Images in [-1, 1], [count, channels, height, width]: a tensor that a notebook shows as a picture."""

    columns: int | None = None

    def _repr_png_(self) -> bytes | None:
        if self.ndim != 4 or not self.is_floating_point():
            return None  # the result of a computation
        return encode(grid(to_uint8(self.detach().cpu().as_subclass(Tensor)), columns=self.columns))


@dataclass(frozen=True, slots=True)
class Run:
    """A run on disk, with its config and one of its checkpoints."""

    path: Path
    config: Config
    step: int

    def sample(
        self,
        count: int = 64,
        *,
        seed: int = 0,
        label: int | str | None = None,
        model: nn.Module | None = None,
        **how: Any,
    ) -> Samples:
        """Images in [-1, 1] from the EMA, or with `raw=True` from the raw weights; `step`: of another checkpoint;
        `label`: a class, by number or name; other `how` as in `generate.Request` (sampler, steps, guidance, eta,
        temperature, variance). A custom model has to be passed again: a run folder holds weights, never code."""
        chosen = {name: how.pop(name) for name in ("raw", "ema_width") if name in how}
        loaded = load_model(self.path, step=how.pop("step", self.step), model=model, **chosen)
        number = None if label is None else find_label(self.path, str(label), loaded.config, "label")
        images = generate(loaded.model, self.config, self._request(count, seed, number, how))
        found = images.as_subclass(Samples)
        found.columns = None if number is not None else columns_for(loaded.config)
        return found

    def _request(self, count: int, seed: int, label: int | None, how: dict[str, Any]) -> Request:
        usual: dict[str, Any] = {} if self.config.diffusion.process == "vp" else {"sampler": "euler"}
        return Request(count, seed, label=label, **usual | how)

    @property
    def findings(self) -> Findings:
        """The worst first; empty if nothing was found."""
        return diagnose(self.path)

    @property
    def verdict(self) -> str:
        """What is wrong, how much could be looked at, and what the model is worth."""
        return diagnose_run(self.path).verdict

    def metrics(self, *signals: str) -> pandas.DataFrame | dict[str, tuple[np.ndarray, np.ndarray]]:
        """What was recorded, or some signals of it: a table with one row per update, or without pandas
        {signal: (updates, numbers)}."""
        with open_history(open_run(self.path).record) as history:
            found = {name: history.raw(name) for name in choose_signals(history.signals(), signals)}
        try:
            import pandas  # pyright: ignore[reportMissingImports]
        except ImportError:
            return found
        columns = {name: pandas.Series(numbers, steps) for name, (steps, numbers) in found.items()}
        return pandas.DataFrame(columns).rename_axis("update")

    def evaluate(
        self,
        count: int = EVALUATED,
        *,
        seed: int = 0,
        features: Any = "lite0",
        model: nn.Module | None = None,
        **how: Any,
    ) -> Assessment:
        """How far samples are from the images of the run, how varied, and whether any is a copy."""
        loaded = load_model(self.path, step=how.pop("step", self.step), model=model)
        request = self._request(count, derive_seed(seed, "evaluate"), None, how)
        request = replace(request, steps=how.get("steps", self.config.sample.steps))
        choice = FeatureChoice(features, device=str(next(loaded.model.parameters()).device))
        return assess_run(open_run(self.path), loaded, request, choice, say=_quiet, advance=_quiet)

    def export(self, out: str | Path, *, label: int | str | None = None) -> Path:
        """Writes a pipeline that diffusers loads, and returns its folder."""
        loaded: LoadedModel = load_model(self.path, step=self.step)
        number = None if label is None else find_label(self.path, str(label), loaded.config, "label")
        export_pipeline(loaded.model, loaded.config, Path(out), number)
        return Path(out)

    def report(self, out: str | Path | None = None) -> Path:
        """Writes the run into one HTML file, and returns its path."""
        folder = open_run(self.path)
        if out is None:
            write_report(folder)
            return folder.report_page
        check_output(Path(out), of_run=REPORT)
        write_output(Path(out), make_report(folder), of_run=REPORT)
        return Path(out)

    def show(self) -> None:
        """In a notebook the run with its newest samples; elsewhere the same in words."""
        try:
            from IPython import get_ipython  # pyright: ignore[reportMissingImports]
            from IPython.display import display  # pyright: ignore[reportMissingImports]
        except ImportError:
            print(self)
            return
        if get_ipython() is None:
            print(self)
        else:
            display(self)

    def __str__(self) -> str:
        return f"{self.path}, step {self.step:,}: {self.verdict}"

    def _repr_html_(self) -> str:
        found, picture, loss, curve = self._summary()
        image = "" if picture is None else f'<img src="{picture}" alt="newest samples" style="max-height:240px">'
        worst = "".join(
            f"<div><b>{escape(each.severity)} {escape(each.code)}</b> {escape(each.cause)}: {escape(each.summary)} "
            f"<i>{escape(each.fix.text)}</i></div>"
            for each in found.findings[:3]
            if each.over is None and each.severity != "info"
        )
        number = "" if loss is None else f"loss {loss:.4g}"
        return (
            f'<div style="display:flex;gap:16px;align-items:flex-start;font-family:sans-serif">{image}'
            f'<div style="max-width:52em"><div><b>{escape(str(self.path))}</b> · step {self.step:,} {number}</div>'
            f"<div>{escape(found.verdict)}</div>{worst}<div>{curve}</div>"
            f"<div><code>safelight dashboard {escape(str(self.path))}</code></div></div></div>"
        )

    def _summary(self) -> tuple[Diagnosis, str | None, float | None, str]:
        """The diagnosis, the newest samples as a data address, the recent loss, and its curve as SVG."""
        folder = open_run(self.path)
        with open_history(folder.record) as history:
            newest = next(locate(folder, reversed(history.pictures("samples", most=1000))), None)
            loss = describe(history, LOSS.name).get("recent")
            spans = history.zoom(LOSS.name, pixels=SPARKLINE[0])
            curve = _sparkline(np.asarray(spans.mean, np.float64))
        content = None if newest is None else read_bytes(newest.path, MAX_PICTURE_BYTES)
        picture = None if content is None else f"data:image/png;base64,{base64.b64encode(content).decode()}"
        return diagnose_run(self.path), picture, loss, curve


def _quiet(*_: object) -> None: ...


def _sparkline(numbers: np.ndarray) -> str:
    numbers = numbers[np.isfinite(numbers)]
    if len(numbers) < 2:
        return ""
    width, height = SPARKLINE
    low, high = float(numbers.min()), float(numbers.max())
    places = np.linspace(1, width - 1, len(numbers))
    heights = height - 1 - (numbers - low) / max(high - low, 1e-12) * (height - 2)
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(places, heights, strict=True))
    return (
        f'<svg width="{width}" height="{height}" role="img" aria-label="loss"><polyline points="{points}" fill="none" '
        'stroke="#b3401b" stroke-width="1.5"/></svg>'
    )
