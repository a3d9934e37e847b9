"""safelight runs"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.table import Table
from rich.text import Text
from tyro.conf import Positional, arg

from safelight.cli.flags import options
from safelight.errors import UsageError
from safelight.terminal import ACCENT, duration, page
from safelight.words import printable, with_error

Key = Callable[[dict[str, Any]], Any]


def _number(value: float | None, sign: int = 1) -> float:
    """What is not known comes last."""
    return math.inf if value is None else sign * value


ORDERS: dict[str, Key] = {
    "newest": lambda run: _number(run["created"], -1),
    "name": lambda run: run["name"],
    "step": lambda run: _number(run["step"], -1),
    "loss": lambda run: _number(run["loss"]),
    "skill": lambda run: _number(run["skill"], -1),
    "distance": lambda run: _number(run["distance"] and run["distance"][0]),
}
STYLES = {"error": "bold red", "warning": "yellow"}


@dataclass(frozen=True, kw_only=True)
class Command:
    """List runs: how far each came, how good it is, and what was found wrong with it."""

    runs: Annotated[tuple[options.PathArgument, ...], Positional, arg(metavar="[RUNS]", help_behavior_hint="")] = ()
    """Folders of runs, or run folders. Without: runs"""
    find: options.Word = None
    """Only runs with this word in their name, state or finding."""
    sort: options.Word = None
    """newest, name, step, loss, skill or distance; the best first. Without it: newest"""
    json: options.Json = False

    def run_command(self) -> None:
        from safelight.config.resolve import nearest
        from safelight.pages.data.run_list import entry
        from safelight.pages.data.runs import find_runs

        order = self.sort or "newest"
        if order not in ORDERS:
            raise UsageError(f"--sort is {order!r}{nearest(order, ORDERS)} It takes {', '.join(ORDERS)}.")
        roots = self.runs or (Path("runs"),)
        for root in roots:
            if not root.is_dir():
                raise UsageError(f"{root} is no folder. Name a run folder, or a folder of runs.")
        found = [entry(run) | {"path": str(run.path)} for run in find_runs(roots)]
        chosen = sorted((run for run in found if self.find is None or has_word(run, self.find)), key=ORDERS[order])
        if self.json:
            from safelight.record.fact_encoding import to_json

            print(to_json({"runs": chosen}, indent=1))
        elif chosen:
            print_page(chosen)
        else:
            where = ", ".join(map(str, roots))
            wanted = "" if self.find is None else f" with {self.find!r} in name, state or finding"
            print(printable(f"No run{wanted} in {where}."))


def has_word(run: dict[str, Any], word: str) -> bool:
    finding = run["finding"] or {}
    texts = (run["name"], run["state"], run["status"], finding.get("code"), finding.get("cause"))
    return any(word.casefold() in str(text).casefold() for text in texts if text)


def print_page(runs: list[dict[str, Any]]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("run", overflow="fold")
    table.add_column("state", no_wrap=True)
    for heading in ("step", "loss", "skill", "distance", "age"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("finding", overflow="fold")
    for run in runs:
        steps = "–" if run["step"] is None else f"{run['step']:,}" + (f" of {run['steps']:,}" if run["steps"] else "")
        distance = (
            "–" if run["distance"] is None else with_error(max(run["distance"][0], 0.0), run["distance"][1] or 0.0)
        )
        age = "–" if run["created"] is None else _age(time.time() - run["created"])
        table.add_row(
            Text(printable(run["name"]), style=f"bold {ACCENT}"), run["state"], steps,
            *("–" if run[name] is None else f"{run[name]:.3g}" for name in ("loss", "skill")), distance, age,
            _finding(run),
        )  # fmt: skip
    page().print(table)


def _finding(run: dict[str, Any]) -> Text:
    if run["problem"]:
        return Text(printable(run["problem"]), style="dim")
    if run["finding"] is None:
        return Text("–", style="dim")
    severity = run["finding"]["severity"]
    words = f"{severity} {run['finding']['code']} {run['finding']['cause']}"
    return Text(printable(words), style=STYLES.get(severity, ""))


def _age(seconds: float) -> str:
    days = seconds / 86_400
    return f"{days:.0f} days" if days >= 2 else duration(max(seconds, 0.0))
