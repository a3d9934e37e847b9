"""The batch that a finding is about, as an event of the record has it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from safelight.record.history import RecordedEvent

MOST_SAMPLES, MOST_IN_WORDS = 64, 8
NUMBERS = ("min", "max", "mean", "std", "nonfinite")


@dataclass(frozen=True, slots=True)
class BlamedBatch:
    """The batch that a finding is about, as the trainer recorded it."""

    step: int
    samples: tuple[int, ...]
    """Indices into the data, the first of them."""
    timesteps: tuple[float, ...]
    images: dict[str, float]
    """min, max, mean and std of what is finite, and nonfinite: the share of what is not."""
    prediction: dict[str, float]
    """The same of what the network answered; empty if it was not asked again."""
    picture: str | None
    """Below the run folder: image, noised and prediction of the worst samples."""

    def words(self) -> list[str]:
        pairs = list(zip(self.samples, self.timesteps, strict=False))[:MOST_IN_WORDS]
        named = ", ".join(f"{sample} (t {t:g})" for sample, t in pairs)
        more = " …" if len(self.samples) > len(pairs) else ""
        lines = [f"batch of step {self.step:,}: images {named}{more}"]
        lines += [f"{name}: {_range(found)}" for name, found in self.numbers().items() if found]
        return lines if self.picture is None else [*lines, f"picture: {self.picture}"]

    def numbers(self) -> dict[str, dict[str, float]]:
        return {"images": self.images, "prediction": self.prediction}


def _range(found: dict[str, float]) -> str:
    share = found.get("nonfinite", 0.0)
    broken = f", {share:.2%} not finite" if share else ""
    if not math.isfinite(found["min"]):
        return f"nothing is finite{broken}"
    return f"{found['min']:.4g} to {found['max']:.4g}, mean {found['mean']:.4g}, deviation {found['std']:.4g}{broken}"


class Events(Protocol):
    def events(self, kind: str) -> Sequence[RecordedEvent]: ...


def batch_at(run: Events, step: int) -> BlamedBatch | None:
    """That of a step whose update was refused; None where it was made, or only overflowed in fp16."""
    notes = (note for note in run.events("refused") if note.step == step and not note.facts.get("overflow"))
    return next((found for note in notes if (found := blamed_batch(step, note.facts)) is not None), None)


def blamed_batch(step: int, facts: Mapping[str, Any]) -> BlamedBatch | None:
    """From the facts of an event, which may hold anything; None where they name no samples."""
    samples, timesteps = (_list(facts.get(name)) for name in ("samples", "timesteps"))
    if not samples or len(samples) != len(timesteps):
        return None
    picture = facts.get("picture")
    return BlamedBatch(
        step,
        tuple(map(int, samples[:MOST_SAMPLES])),
        tuple(timesteps[:MOST_SAMPLES]),
        _numbers("image", facts),
        _numbers("prediction", facts),
        picture[:200] if isinstance(picture, str) else None,
    )


def _list(value: Any) -> list[float]:
    """Of finite numbers; empty if anything else is in it."""
    numbers = [_number(each) for each in value] if isinstance(value, list) else []
    return numbers if all(map(math.isfinite, numbers)) else []


def _numbers(name: str, facts: Mapping[str, Any]) -> dict[str, float]:
    found = {key: _number(facts[f"{name}_{key}"]) for key in NUMBERS if f"{name}_{key}" in facts}
    return {"nonfinite": 0.0} | found if found.keys() >= set(NUMBERS[:4]) else {}


def _number(value: Any) -> float:
    """NaN is written as a word."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
