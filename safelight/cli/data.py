"""safelight data"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from rich.text import Text
from tyro.conf import arg

from safelight.cli.flags import options
from safelight.errors import DataError
from safelight.printing import open_console
from safelight.terminal import ACCENT, Terminal
from safelight.words import printable

if TYPE_CHECKING:
    from safelight.config.tree import Data


@dataclass(frozen=True, kw_only=True)
class Command:
    """Look at a set of images before training on it: what it holds, what is wrong with it, what will be lost.

    The images are prepared and cached on the way, so that training starts at once.
    """

    data: options.Source = None
    """digits, shapes, fashion-mnist, a folder of images, a zip of one, an idx file, or a saved HF dataset."""
    image_size: options.Number = None
    """Side of the square the model would see, in pixels."""
    preset: options.Preset = None
    config: options.ConfigFile = None
    set: options.Settings = ()
    """Any setting, over everything else: --set data.fit=pad"""
    out: Annotated[options.PathArgument | None, arg(aliases=["-o"], metavar="PNG", help_behavior_hint="")] = None
    """Also draw a contact sheet: a few images, the copies, the blank and extreme ones, and what was left out."""
    json: options.Json = False

    def run_command(self) -> None:
        config = options.config_from(self)
        from safelight.config.check import check_ranges

        check_ranges(config)
        from safelight.contact_sheet import contact_sheet
        from safelight.data.prepare import prepare, too_many_bad
        from safelight.data.summary import summary, too_bad
        from safelight.outputs import check_output, write_output
        from safelight.pictures.grid import encode

        inputs = (Path(config.data.source), self.config)
        if self.out is not None:
            check_output(self.out, inputs=inputs)
        terminal = Terminal()
        with terminal.bar("Preparing images") as advance:
            images = prepare(config.data, advance, terminal.say)
        found = summary(images, config.data)
        if self.out is not None:
            options.make_room(self.out.parent)
            write_output(self.out, encode(contact_sheet(images, found)), inputs=inputs)
            terminal.say(f"Contact sheet: {self.out}")
        if self.json:
            print(json.dumps(found, indent=1))
        else:
            print_page(found, config.data)
        if too_bad(len(images.rejected), len(images), config.data):
            raise DataError(too_many_bad(config.data, images.rejected, len(images)))


def print_page(found: dict[str, Any], data: Data) -> None:
    from safelight.contact_sheet import MAX_LISTED_FILES
    from safelight.data.summary import lines, remarks

    console = open_console()
    table = Table.grid(padding=(0, 2))
    for name, words in lines(found):
        table.add_row(Text(f"  {name}", style="dim"), Text(printable(words)))
    console.print(Text(printable(data.source), style=f"bold {ACCENT}"), table, sep="\n")
    for name, reason in found["rejected"][:MAX_LISTED_FILES]:
        console.print(
            Text.assemble("  left out  ", (printable(name), "bold"), f": {printable(reason)}"), soft_wrap=True
        )
    if len(found["rejected"]) > MAX_LISTED_FILES:
        console.print(
            Text(f"  and {len(found['rejected']) - MAX_LISTED_FILES:,} more: --json lists them all", style="dim")
        )
    for remark in remarks(found, data):
        console.print(Text.assemble(("! ", f"bold {ACCENT}"), printable(remark)), soft_wrap=True)
