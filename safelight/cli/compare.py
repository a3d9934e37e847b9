"""safelight compare"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, UseAppendAction, arg

from safelight.errors import UsageError

LOWER, HIGHER = "low", "high"
BEST = {  # what counts as better; a loss by itself mostly says which timesteps were drawn
    "probe/ema": LOWER,
    "probe/raw": LOWER,
    "probe/held_ema": LOWER,
    "probe/held_raw": LOWER,
    "loss/mean": None,
    "gradient/norm": None,
    "speed/images": HIGHER,
}


@dataclass(frozen=True, kw_only=True)
class Command:
    """Put runs side by side: which settings differ, how far did each come, where do its signals stand?"""

    run: Annotated[tuple[Path, ...], Positional, arg(metavar="RUN RUN …", help_behavior_hint="")] = ()
    """Two run folders or more."""
    signal: Annotated[tuple[str, ...], UseAppendAction, arg(metavar="NAME", help_behavior_hint="(repeatable)")] = ()
    """Compare these signals instead of the usual ones."""
    json: bool = False
    """Print JSON instead of a page."""

    def run_command(self) -> None:
        if len(self.run) < 2:
            raise UsageError("`safelight compare` needs at least two runs: safelight compare runs/first runs/second")
        found = compare(self.run, self.signal)
        if self.json:
            print(json.dumps(found, indent=1, allow_nan=False))
        else:
            print_page(found)


def compare(paths: tuple[Path, ...], signals: tuple[str, ...]) -> dict[str, Any]:
    """{"settings": {key: [values]}, "runs": [{"run", "status", "step", "steps", "seconds", "signals"}]}."""
    from safelight.config.resolve import difference, flatten, resolve, to_dict
    from safelight.run import open_run

    folders = [open_run(path) for path in paths]
    configs = [resolve(file=folder.config) for folder in folders]
    differing = {key: None for other in configs[1:] for key in difference(configs[0], other)}
    settings = [flatten(to_dict(config)) for config in configs]
    return {
        "settings": {key: [each[key] for each in settings] for key in differing},
        "runs": [
            {
                "run": str(folder.path),
                "status": folder.status().get("status"),
                "step": folder.status().get("step"),
                "steps": config.train.steps,
                "seconds": seconds_trained(folder.checkpoints),
                "signals": standing(folder.record, signals),
            }
            for folder, config in zip(folders, configs, strict=True)
        ],
    }


def seconds_trained(checkpoints: Path) -> float | None:
    """As the newest checkpoint has it."""
    for folder in sorted(checkpoints.glob("step_*"), reverse=True):
        try:
            return float(json.loads((folder / "state.json").read_bytes())["seconds"])
        except (OSError, ValueError, TypeError, KeyError):
            continue
    return None


def standing(record: Path, signals: tuple[str, ...]) -> dict[str, Any]:
    """Last, recent and best of each signal that the run has."""
    from safelight.cli.metrics import choose_signals
    from safelight.record.export import describe
    from safelight.record.history import open_history

    with open_history(record) as history:
        known = history.signals()
        names = choose_signals(known, signals) if signals else [name for name in BEST if name in known]
        found = {name: describe(history, name) for name in names}
        for name, facts in found.items():
            facts["best"] = None if BEST.get(name) is None else facts.get(str(BEST[name]))
            facts["best_step"] = None if facts["best"] is None else history.find(name, facts["best"])
    return found


def print_page(found: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    from safelight.cli.metrics import page
    from safelight.terminal import ACCENT, duration

    runs = found["runs"]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style=f"bold {ACCENT}")
    table.add_column("")
    for run in runs:
        table.add_column(run["run"], justify="right", overflow="fold")

    def add(name: str, words: list[str]) -> None:
        differ = len(set(words)) > 1
        table.add_row(Text(name, style="dim"), *(Text(word, style="" if differ else "dim") for word in words))

    for key, values in found["settings"].items():
        add(key, [str(value) for value in values])
    if not found["settings"]:
        add("settings", ["the same"] * len(runs))
    table.add_section()
    add("status", [str(run["status"] or "–") for run in runs])
    add("step", [f"{run['step'] if run['step'] is not None else '–'} of {run['steps']}" for run in runs])
    add("time", ["–" if run["seconds"] is None else duration(run["seconds"]) for run in runs])
    for name in dict.fromkeys(name for run in runs for name in run["signals"]):
        for kind in ("latest", "recent", "best"):
            words = [in_words(run["signals"].get(name, {}), kind) for run in runs]
            if set(words) != {"–"}:
                add(f"{name}, {CALLED[kind]}", words)
    page().print(table)


CALLED = {"latest": "last", "recent": "recent mean", "best": "best"}


def in_words(facts: dict[str, Any], kind: str) -> str:
    number = facts.get(kind)
    if number is None:
        return "×" if kind == "latest" and kind in facts else "–"
    return f"{number:.4g}" + (f" (step {facts['best_step']:,})" if kind == "best" else "")
