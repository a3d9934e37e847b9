"""safelight metrics"""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from rich.text import Text
from tyro.conf import Positional, arg

from safelight.cli.flags import options
from safelight.errors import UsageError
from safelight.run import open_recorded
from safelight.terminal import ACCENT, WIDE_COLUMNS, page
from safelight.vocabulary import CHECK, signal_of
from safelight.words import printable

if TYPE_CHECKING:
    from safelight.record.dump import Span
    from safelight.record.history import History

# What matters of nearly every run; --all shows the rest.
CHOSEN = ("loss/mean", "probe/ema", "probe/held_ema", "skill/ema", "skill/held", "gradient/norm", "optimizer/lr",
          "quality/distance", "diversity/variance", "copies/share", "update/refused", "speed/images", "speed/data_wait",
          "system/memory")  # fmt: skip
MOST_OWN = 12  # numbers of the loop's own that are shown without --all
MIN_ROOMY_COLUMNS = 110  # columns of a terminal with room for counts and units


@dataclass(frozen=True, kw_only=True)
class Command:
    """Show what a run measured: where does each signal stand, how did it get there, what was not finite?"""

    run: options.RunPath
    signals: Annotated[tuple[str, ...], Positional, arg(metavar="[SIGNAL …]", help_behavior_hint="")] = ()
    """Names of signals, such as loss/mean; without any, those that matter most (--json and --csv: all)."""
    all: options.Flag = False
    """Print every signal that was recorded."""
    first: options.Number = None
    """Leave out the steps before this one."""
    last: options.Number = None
    """Leave out the steps after this one."""
    smooth: options.Number = None
    """Window of smoothing, in steps: `recent` is the mean of the last so many; --csv has the moving mean of each."""
    points: options.Number = None
    """Also give the curve, in at least so many spans (--json, --csv)."""
    json: options.Json = False
    csv: Annotated[str | None, arg(metavar="FILE", help_behavior_hint="")] = None
    """Write the readings to a file, or to - for stdout: every single one, or spans with --points."""

    def run_command(self) -> None:
        from safelight.record.dump import choose_signals, describe
        from safelight.record.history import open_history

        if self.json and self.csv is not None:
            raise UsageError("--json and --csv exclude each other.")
        folder = open_recorded(self.run)
        span = options.whole("--first", self.first), options.whole("--last", self.last)
        points = options.whole("--points", self.points, at_least=1, at_most=10**6)
        smooth = options.whole("--smooth", self.smooth, at_least=1, at_most=10**9)
        if smooth is not None and points is not None:
            raise UsageError("--smooth and --points exclude each other.")
        with open_history(folder.record) as history:
            names = choose_signals(history.signals(), self.signals)
            if self.csv is not None:
                self._write_csv(history, names, span, points, smooth)
            elif self.json:
                found = {name: describe(history, name, *span, points=points, recent=smooth) for name in names}
                print(json.dumps({"run": str(self.run), "signals": found}, indent=1, allow_nan=False))
            else:
                shown = names if self.all or self.signals else chosen(names)
                print_page(str(self.run), history, shown, span, smooth)
                if len(shown) < len(names):
                    page().print(Text(f"{len(names) - len(shown):,} more: --all", style="dim"))

    def _write_csv(
        self, history: History, names: list[str], span: Span, points: int | None, smooth: int | None
    ) -> None:
        from safelight.outputs import open_output
        from safelight.record.dump import write_csv

        if self.csv == "-":
            write_csv(sys.stdout, history, names, span, points, smooth)
            return
        path = Path(str(self.csv))
        with open_output(path, "--csv") as raw:
            file = io.TextIOWrapper(raw, encoding="utf-8", newline="")
            write_csv(file, history, names, span, points, smooth)
            file.detach()  # flushed; closing it would close what is not finished yet
        print(path)


def chosen(names: list[str]) -> list[str]:
    """The dozen that matter, after what the loop logged itself; all, where there is nothing of them."""
    own = [name for name in names if signal_of(name) is None and not name.startswith(f"{CHECK.name}/")]
    return [*own[:MOST_OWN], *(name for name in CHOSEN if name in names)] or names


def print_page(title: str, history: History, names: list[str], span: Span, smooth: int | None = None) -> None:
    from safelight.record.dump import describe
    from safelight.record.sparkline import draw

    console = page()
    roomy, wide = console.width >= MIN_ROOMY_COLUMNS, console.width >= WIDE_COLUMNS
    columns = 24 if roomy else 12
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for heading in ("signal", "curve"):
        table.add_column(heading, overflow="fold")
    for heading in ("last", "recent", "low", "high", *(["count"] if roomy else []), "×"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in [*(["unit"] if roomy else []), *(["meaning"] if wide else [])]:
        table.add_column(heading, style="dim")
    for name in names:
        found = describe(history, name, *span, recent=smooth)
        curve = draw(history.zoom(name, *span, pixels=columns), columns)
        figures = [in_words(found, key) for key in ("latest", "recent", "low", "high")]
        count = [f"{found['count']:,}"] if roomy else []
        sick = Text(f"{found.get('nonfinite', 0):,}", style="bold red" if found.get("nonfinite") else "dim")
        words = [found["unit"] or ""] * roomy + [found["meaning"] or ""] * wide
        table.add_row(printable(name), Text(curve, style=ACCENT), *figures, *count, sick, *words)
    console.print(Text(printable(title), style=f"bold {ACCENT}"), table, sep="\n")


def in_words(found: dict[str, Any], key: str) -> str:
    """A mark for a number that is not finite, a dash if there is no number."""
    if (number := found.get(key)) is not None:
        return f"{number:.4g}"
    return "×" if key in found else "–"
