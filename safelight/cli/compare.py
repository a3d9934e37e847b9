"""safelight compare"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from rich.table import Table
from rich.text import Text
from tyro.conf import Positional, UseAppendAction, arg

from safelight.cli.flags import options
from safelight.errors import UsageError
from safelight.terminal import ACCENT, duration, page
from safelight.words import printable, with_error

CALLED = {"latest": "last", "recent": "recent mean", "best": "best"}


@dataclass(frozen=True, kw_only=True)
class Command:
    """Put runs side by side: which settings differ, how far did each come, where do its signals stand?"""

    run: Annotated[tuple[options.Place, ...], Positional, arg(metavar="RUN RUN …", help_behavior_hint="")] = ()
    """Two run folders or more."""
    signal: Annotated[tuple[str, ...], UseAppendAction, arg(metavar="NAME", help_behavior_hint="(repeatable)")] = ()
    """Compare these signals instead of the usual ones."""
    json: options.Json = False

    def run_command(self) -> None:
        if len(self.run) < 2:
            raise UsageError("`safelight compare` needs at least two runs: safelight compare runs/first runs/second")
        from safelight.comparison import compare

        found = compare(self.run, self.signal)
        if self.json:
            from safelight.record.fact_encoding import to_json

            print(to_json(found, indent=1))
        else:
            print_page(found)


def print_page(found: dict[str, Any]) -> None:
    runs = found["runs"]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style=f"bold {ACCENT}")
    table.add_column("")
    for run in runs:
        table.add_column(printable(run["run"]), justify="right", overflow="fold")

    rows = {key: [str(value) for value in values] for key, values in found["settings"].items()}
    rows = rows or {"settings": ["the same"] * len(runs)}
    rows["status"] = [str(run["status"] or "–") for run in runs]
    rows["step"] = [f"{run['step'] if run['step'] is not None else '–'} of {run['steps'] or '?'}" for run in runs]
    rows["time"] = ["–" if run["seconds"] is None else duration(run["seconds"]) for run in runs]
    rows["best checkpoint"] = [best_in_words(run["best_step"], run["evaluation"]) for run in runs]
    for name in dict.fromkeys(name for run in runs for name in run["signals"]):
        for kind, title in CALLED.items():
            words = [in_words(run["signals"].get(name, {}), kind) for run in runs]
            if set(words) != {"–"}:
                rows[f"{name}, {title}"] = words
    for name, words in rows.items():
        style = "" if len(set(words)) > 1 else "dim"
        table.add_row(Text(printable(name), style="dim"), *(Text(printable(word), style=style) for word in words))
    page().print(table)


def best_in_words(step: int | None, evaluation: dict[str, Any] | None) -> str:
    if evaluation is None:
        return "–" if step is None else f"step {step:,}"
    distance = with_error(max(evaluation["distance"], 0.0), evaluation["error"])
    return f"step {evaluation['step']:,}, {evaluation['label']} {distance} on fresh noise"


def in_words(facts: dict[str, Any], kind: str) -> str:
    number = facts.get(kind)
    if number is None:
        return "×" if kind == "latest" and kind in facts else "–"
    return f"{number:.4g}" + (f" (step {facts['best_step']:,})" if kind == "best" else "")
