"""The runs as OpenMetrics text, for Prometheus and what reads the same: state, step, loss, findings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
# (name, help, how it is found in a line of the list of runs)
NUMBERS = (
    ("step", "Completed optimizer steps.", "step"),
    ("steps", "Planned optimizer steps.", "steps"),
    ("loss", "Mean of the loss over the last 64 steps.", "loss"),
    ("skill", "Skill of the EMA on the fixed set: 0 knows no shape, 1 is the best linear filter.", "skill"),
    ("images_per_second", "Images per second over the recent steps.", "speed"),
    ("left_seconds", "Seconds until the last step, by the pace so far.", "left"),
    ("heartbeat_timestamp_seconds", "Time of the last sign of life.", "heartbeat"),
)
STATES = ("live", "watched", "stale", "finished", "interrupted", "stopped", "refused", "crashed", "empty")


def openmetrics(runs: Sequence[Mapping[str, Any]]) -> str:
    """`runs`: lines of the list."""
    lines = list[str]()
    for name, meaning, key in NUMBERS:
        lines += _family(name, meaning, ((run, {}, run.get(key)) for run in runs))
    lines += _family("distance", "Distance of samples from real images, by its name.", _distances(runs))
    states = ((run, {"state": state}, float(run.get("state") == state)) for run in runs for state in STATES)
    lines += _family("state", "1 for the state that the run is in.", states)
    worst = ((run, _finding(run), 1.0) for run in runs if run.get("finding"))
    lines += _family("finding", "The worst finding that is open now.", worst)
    return "\n".join([*lines, "# EOF", ""])


def _distances(runs: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], dict[str, str], Any]]:
    for run in runs:
        if run.get("distance"):
            yield run, {"name": str(run.get("distance_name") or "distance")}, run["distance"][0]


def _finding(run: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(run["finding"].get(key)) for key in ("code", "cause", "severity")}


def _family(name: str, meaning: str, readings: Any) -> list[str]:
    """Nothing where no run has one: a number that is not known is left out, and not 0."""
    samples = [
        f"safelight_{name}{_labels({'run': str(run['name']), 'id': str(run['id']), **labels})} {float(value):.10g}"
        for run, labels, value in readings
        if isinstance(value, int | float) and math.isfinite(value)
    ]
    return [f"# TYPE safelight_{name} gauge", f"# HELP safelight_{name} {meaning}", *samples] if samples else []


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
