"""A table becomes readings: which column is what, which steps they are of, one run, one reading for each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from safelight.diagnosis.logs.cells import STEP
from safelight.diagnosis.logs.columns import Role, best, is_part, role_of, words_of
from safelight.diagnosis.logs.table import Table
from safelight.diagnosis.run_history import InMemoryReadings
from safelight.diagnosis.spacing import Spacing, spacing_of
from safelight.errors import UsageError
from safelight.vocabulary import (
    EMA_DECAY,
    GRADIENT_NORM,
    HELD_OUT_LOSS_RAW,
    LEARNING_RATE,
    LOSS,
    LOSS_SCALE,
    REFUSED,
    Signal,
)

SIGNALS: dict[Role, Signal] = {
    "loss": LOSS,
    "learning rate": LEARNING_RATE,
    "gradient norm": GRADIENT_NORM,
    "validation loss": HELD_OUT_LOSS_RAW,
    "loss scale": LOSS_SCALE,
    "EMA decay": EMA_DECAY,
}
INTERLEAVED_STEPS_BACK = 1000  # times that steps go back: processes that write into one log in turn
MAY_BE_NAN = (LOSS.name, GRADIENT_NORM.name)
NEWEST_FIRST = 0.9  # of the steps go back
SHOWN = 12  # names in a sentence


@dataclass(frozen=True, slots=True)
class LogSummary:
    """What was read, for the person who has to believe it."""

    path: str
    kind: str
    rows: int
    columns: dict[str, str]
    """By what it was taken as, the name in the log."""
    left_out: tuple[str, ...]
    readings: int
    """The number of losses."""
    steps: tuple[int, int]
    spacing: Spacing
    notes: tuple[str, ...]

    def words(self) -> list[str]:
        taken = ", ".join(f"{name} as {role}" for role, name in self.columns.items() if name != STEP)
        first, last = self.steps
        where = f"of {self.spacing.words()}, " if self.spacing.known else ""
        lines = [
            f"Read: {self.kind}, {self.rows:,} rows. Taken: {taken}.",
            f"Losses: {self.readings:,}, {where}{'steps' if self.spacing.known else 'rows'} {first:,} to {last:,}.",
        ]
        if self.left_out:
            more = f" and {len(self.left_out) - SHOWN:,} more" if len(self.left_out) > SHOWN else ""
            lines.append(f"Left out: {', '.join(self.left_out[:SHOWN])}{more}.")
        return [*lines, *self.notes]

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "rows": self.rows,
            "columns": self.columns,
            "left_out": list(self.left_out),
            "losses": self.readings,
            "steps": list(self.steps),
            "every": self.spacing.every,
            "single": self.spacing.single,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class LogReadings:
    readings: InMemoryReadings
    summary: LogSummary


def readings_of(table: Table, path: str, kind: str, notes: tuple[str, ...] = ()) -> LogReadings:
    """UsageError if there is no loss among the columns, or more than one."""
    names = {"loss": _loss_of(table, path)}
    if step := _step_of(table):
        names["step"] = step
    for role in SIGNALS:
        if role != "loss" and (found := best(table.columns, role)):
            names[role] = found[0] if role != "learning rate" else max(found, key=lambda n: _highest(table, n))
    said = list(notes)
    series: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for role, signal in SIGNALS.items():
        if role in names and len((found := _in_order(table, names[role], step, said if role == "loss" else []))[0]):
            series[signal.name] = found
    steps, losses = series.get(LOSS.name, (np.zeros(0, np.int64), np.zeros(0)))
    if not len(steps):
        raise UsageError(f"{path}: the column {names['loss']!r} has no number in it.")
    spacing = spacing_of(steps, losses, known=step is not None)
    if LOSS_SCALE.name in series:
        series[REFUSED.name] = _lowered(*series[LOSS_SCALE.name])
    broken = {int(at) for name in MAY_BE_NAN if name in series for at, number in zip(*series[name], strict=True)
              if not np.isfinite(number)}  # fmt: skip
    events = [(at, "nonfinite", {}) for at in sorted(broken)]
    _describe(table, names, spacing, said)
    left_out = [name for name in (*table.columns, *table.others) if name not in names.values()]
    taken = {role: name for role, name in names.items() if role not in SIGNALS or SIGNALS[role].name in series}
    bounds = int(steps[0]), int(steps[-1])
    summary = LogSummary(
        path, kind, table.rows, taken, tuple(left_out), len(steps), bounds, spacing, tuple(dict.fromkeys(said))
    )
    return LogReadings(InMemoryReadings(series, events), summary)


def _loss_of(table: Table, path: str) -> str:
    if table.chosen is not None:
        if table.chosen in table.columns:
            return table.chosen
        from safelight.config.resolve import nearest

        columns = [*table.columns, *table.others]
        raise UsageError(f"{path} has no column {table.chosen!r} with numbers{nearest(table.chosen, columns)}")
    found = best(table.columns, "loss")
    if not found:
        names = [*table.columns, *table.others]
        has = f"It has {_listed(names)}." if names else "It has no number that has a name."
        raise UsageError(f"{path} has no column that is called a loss. {has} Name one with --loss.")
    exports = [name for name in found if " - " in name]
    if len(exports) > 1 and len({words_of(name) for name in exports}) == 1:
        raise UsageError(f"{path} has several runs side by side: {_listed(exports)}. Choose one with --loss.")
    if is_part(found[0]) and len(found) > 1:
        raise UsageError(f"{path} has several losses, and none that is plainly the whole: {_listed(found)}. "
                         "Choose one with --loss.")  # fmt: skip
    return found[0]


def _listed(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else "")


def _step_of(table: Table) -> str | None:
    """The column of steps; None where rows have to be counted: an epoch is not a step."""
    for name in best(table.columns, "step"):
        _, numbers = table.columns[name].arrays()
        if (
            len(numbers)
            and np.isfinite(numbers).all()
            and (numbers == np.round(numbers)).all()
            and numbers.max() < 2**53
        ):
            return name
    return None


def _highest(table: Table, name: str) -> float:
    numbers = table.columns[name].arrays()[1]
    return float(numbers[np.isfinite(numbers)].max(initial=-1.0))


def _at(table: Table, rows: np.ndarray, step: str | None) -> tuple[np.ndarray, np.ndarray]:
    """(steps of some rows, which of them have one)."""
    if step is None:
        return rows, np.ones(len(rows), bool)
    steps, numbers = table.columns[step].arrays()
    places = np.minimum(np.searchsorted(steps, rows), len(steps) - 1)
    return numbers[places].astype(np.int64), steps[places] == rows


def _numbers(table: Table, name: str, said: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """(rows, numbers) of a column, with all that are not finite: those that were dropped, and empty cells that are."""
    rows, numbers = table.columns[name].arrays()
    empty = table.emptied(name) if role_of(name) == "loss" else []
    if empty:
        said.append(f"{len(empty):,} rows lack only {name}: an empty cell there is taken as NaN, as pandas writes it.")
    more = np.setdiff1d([*table.columns[name].broken, *empty], rows).astype(np.int64)
    rows, numbers = np.append(rows, more), np.append(numbers, np.full(len(more), np.nan))
    order = np.argsort(rows, kind="stable")
    return rows[order], numbers[order]


def _in_order(table: Table, name: str, step: str | None, said: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """(steps, numbers) of the last run, each step once."""
    rows, numbers = _numbers(table, name, said)
    steps, there = _at(table, rows, step)
    steps, numbers = steps[there], numbers[there]
    if len(steps) > 2 and float(np.mean(np.diff(steps) < 0)) > NEWEST_FIRST:
        steps, numbers = steps[::-1], numbers[::-1]
    kept = _last_run(steps, said)
    steps, numbers = steps[kept], numbers[kept]
    last = np.append(steps[1:] != steps[:-1], True)[: len(steps)]
    return steps[last], numbers[last]


def _last_run(steps: np.ndarray, said: list[str]) -> np.ndarray:
    """Places, in the order of their steps. Where steps go back to the first, another run begins; where they go back to
    the middle, it was resumed, and what was trained again counts."""
    back = np.flatnonzero(np.diff(steps) < 0) + 1
    if len(back) > INTERLEAVED_STEPS_BACK:
        return np.argsort(steps, kind="stable")
    apart = np.diff(steps)
    usual = int(np.median(apart[apart > 0])) if (apart > 0).any() else 1
    kept, start, runs, resumes = np.ones(len(steps), bool), 0, 1, 0
    for place in back:
        if steps[place] <= steps[start] + usual and place - start > 2:
            kept[start:place], start, runs = False, place, runs + 1
            continue
        again = kept[start:place] & (steps[start:place] >= steps[place])
        resumes += int(again.sum()) > 1
        kept[start:place] &= ~again
    if runs > 1:
        said.append(f"{runs:,} runs stand in it, one after the other: the last one was judged.")
    if resumes:
        said.append(f"Its steps go back {resumes:,} time{'s' * (resumes != 1)}, as after a resume: what was trained "
                    "again counts.")  # fmt: skip
    return np.flatnonzero(kept)


def _lowered(steps: np.ndarray, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A loss scale is lowered where an update was refused, and nowhere else."""
    return steps[1:], (np.diff(scales) < 0).astype(np.float64)


def _describe(table: Table, names: dict[str, str], spacing: Spacing, said: list[str]) -> None:
    if not spacing.known:
        said.append("No column of steps: rows are counted, and rules that need every step do not look.")
    if table.apart > 1:
        said.append(f"It is so long that one row in {table.apart:,} was kept; what is not finite was kept in all.")
    for role, name in names.items():
        if name in table.rounded:
            said.append(f"{name} has zeros that are only what rounding left of it: they are not taken as 0.")
        if role == "validation loss" and table.columns[name].broken:
            said.append(f"{name} has {len(table.columns[name].broken):,} values that are not finite.")
