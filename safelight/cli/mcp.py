"""safelight mcp"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from safelight.cli.flags import options
from safelight.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Command:
    """Let an agent read runs, over the Model Context Protocol on stdin and stdout. It reads only.

    A client starts it, for example with {"command": "safelight", "args": ["mcp", "/path/to/runs"]}.
    """

    runs: Annotated[tuple[options.PathArgument, ...], Positional, arg(metavar="[RUNS]", help_behavior_hint="")] = ()
    """Folders of runs, or run folders; nothing else can be read. Without: runs"""

    def run_command(self) -> None:
        roots = [path.absolute() for path in self.runs or (Path("runs"),)]
        for root in roots:
            if not root.is_dir():
                raise UsageError(f"{root} is no folder. Name a run folder, or a folder of runs.")
        from safelight.pages.mcp.server import serve

        serve(roots)
