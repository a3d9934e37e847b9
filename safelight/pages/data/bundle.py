"""The pages' modules as one script: each keeps its own scope, and imports become plain names."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path, PurePosixPath

STATIC = Path(__file__).parents[1] / "server" / "static"
STYLES = ("theme.css", "page.css", "chart.css", "parts.css")
PAPER = "print.css"
IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";\n', re.M)
EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) (\w+))", re.M)


def bundle_script(entry: str = "main.js", static: Path = STATIC) -> str:
    """The entry after all that it imports, directly or not, in one strict function."""
    parts: list[str] = []
    _add(PurePosixPath(entry), static, parts, {}, ())
    return "\n".join(['(() => {\n"use strict";', *parts, "})();\n"])


def bundle_style(static: Path = STATIC) -> str:
    screen = "\n".join((static / "style" / name).read_text(encoding="utf-8") for name in STYLES)
    paper = (static / "style" / PAPER).read_text(encoding="utf-8")
    [page] = re.findall(r"^@page \{[^}]*\}\n", paper, re.M)  # stands outside of @media
    return f"{screen}\n{page}\n@media print {{\n{paper.replace(page, '')}\n}}\n"


def _add(
    module: PurePosixPath,
    static: Path,
    parts: list[str],
    names: dict[PurePosixPath, str],
    above: tuple[PurePosixPath, ...],
) -> str:
    """Appends a module behind what it needs; returns the name that holds its exports."""
    if module in names:
        return names[module]
    if module in above:
        raise ValueError(f"{module} imports itself by way of {', '.join(map(str, above[above.index(module) + 1 :]))}.")
    source = (static / module).read_text(encoding="utf-8")

    def imported(found: re.Match[str]) -> str:
        target = PurePosixPath(posixpath.normpath(module.parent / found[2]))  # "../words.js" in page/run.js is words.js
        holder = _add(target, static, parts, names, (*above, module))
        return f"const {{{found[1].replace(' as ', ': ')}}} = {holder};\n"

    body = IMPORT.sub(imported, source)
    exported = EXPORT.findall(body)
    body = EXPORT.sub("", body)
    if left := re.search(r"^(?:import|export)\b.*$", body, re.M):
        raise ValueError(f"{module} has a line that cannot be bundled: {left[0]}")
    names[module] = "$" + re.sub(r"\W", "_", str(module.with_suffix("")))
    parts.append(f"const {names[module]} = (() => {{\n{body}return {{ {', '.join(exported)} }};\n}})();")
    return names[module]
