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
RECENT = ("loss/mean", "gradient/norm", "speed/images")  # of what fluctuates from step to step, the mean is shown


@dataclass(frozen=True, kw_only=True)
class Command:
    """Put runs side by side: which is better, is it more than chance, which settings differ?"""

    run: Annotated[tuple[options.PathArgument, ...], Positional, arg(metavar="RUN RUN …", help_behavior_hint="")] = ()
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
        for kind, title in _shown_of(name, runs).items():
            words = [in_words(run["signals"].get(name, {}), kind) for run in runs]
            if set(words) != {"–"}:
                rows[f"{name}, {title}"] = words
    for name, words in rows.items():
        style = "" if len(set(words)) > 1 else "dim"
        table.add_row(Text(printable(name), style="dim"), *(Text(printable(word), style=style) for word in words))
    console = page()
    console.print(Text(printable(found["verdict"]["sentence"]), style="bold"), "", table, sep="\n")
    if any(value is not None for row in found["levels"] for value in row["losses"]):
        console.print("", level_table(found), sep="\n")


def level_table(found: dict[str, Any]) -> Table:
    """The newest loss and skill of each noise level, the most noise first; the lowest loss of each is bold."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", title="By noise level", title_justify="left")
    table.title_style = f"bold {ACCENT}"
    table.add_column("level")
    skilled = any(value is not None for row in found["levels"] for value in row["skills"])
    for run in found["runs"]:
        table.add_column(f"loss {printable(run['run'])}", justify="right", overflow="fold")
    for run in found["runs"] if skilled else ():
        table.add_column(f"skill {printable(run['run'])}", justify="right", overflow="fold")
    for row in reversed(found["levels"]):
        known = [value for value in row["losses"] if value is not None]
        words = {0: "0, least noise", len(found["levels"]) - 1: f"{row['level']}, most noise"}.get(row["level"], "")
        losses = [_cell(value, f"{value:.4g}" if value is not None else "", len(known) > 1 and value == min(known))
                  for value in row["losses"]]  # fmt: skip
        skills = [_cell(value, f"{value:.2f}" if value is not None else "") for value in row["skills"]]
        table.add_row(Text(words or str(row["level"]), style="dim"), *losses, *(skills if skilled else ()))
    return table


def _cell(value: float | None, words: str, best: bool = False) -> Text:
    return Text("–" if value is None else words, style="bold" if best else "")


def _shown_of(name: str, runs: list[dict[str, Any]]) -> dict[str, str]:
    """What is shown of a signal: its best where one value is better than another, else its mean or its last."""
    has_best = any(run["signals"].get(name, {}).get("best") is not None for run in runs)
    kind = "recent" if name in RECENT else "best" if has_best else "latest"
    return {kind: CALLED[kind]}


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
