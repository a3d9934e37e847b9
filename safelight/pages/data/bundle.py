"""The pages' modules as one script: each keeps its own scope, and imports become plain names."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path, PurePosixPath

STATIC = Path(__file__).parents[1] / "server" / "static"
STYLES = ("theme.css", "page.css", "chart.css", "parts.css")
IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";\n', re.M)
EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) (\w+))", re.M)


def bundle_script(static: Path = STATIC) -> str:
    """main.js after all that it imports, directly or not, in one strict function."""
    parts: list[str] = []
    names: dict[PurePosixPath, str] = {}  # of the constants that hold the exports

    def add(module: PurePosixPath, above: tuple[PurePosixPath, ...] = ()) -> None:
        """Appends a module behind what it needs."""
        if module in names:
            return
        if module in above:
            way = ", ".join(map(str, above[above.index(module) + 1 :]))
            raise ValueError(f"{module} imports itself by way of {way}.")

        def imported(found: re.Match[str]) -> str:
            target = PurePosixPath(posixpath.normpath(module.parent / found[2]))  # "../a.js" in page/b.js is a.js
            add(target, (*above, module))
            return f"const {{{found[1].replace(' as ', ': ')}}} = {names[target]};\n"

        body = IMPORT.sub(imported, (static / module).read_text(encoding="utf-8"))
        exported = ", ".join(EXPORT.findall(body))
        body = EXPORT.sub("", body)
        if left := re.search(r"^(?:import|export)\b.*$", body, re.M):
            raise ValueError(f"{module} has a line that cannot be bundled: {left[0]}")
        names[module] = "$" + re.sub(r"\W", "_", str(module.with_suffix("")))
        parts.append(f"const {names[module]} = (() => {{\n{body}return {{ {exported} }};\n}})();")

    add(PurePosixPath("main.js"))
    return "\n".join(['(() => {\n"use strict";', *parts, "})();\n"])


def bundle_style(static: Path = STATIC) -> str:
    screen = "\n".join((static / "style" / name).read_text(encoding="utf-8") for name in STYLES)
    paper = (static / "style" / "print.css").read_text(encoding="utf-8")
    [page] = re.findall(r"^@page \{[^}]*\}\n", paper, re.M)  # stands outside of @media
    return f"{screen}\n{page}\n@media print {{\n{paper.replace(page, '')}\n}}\n"
