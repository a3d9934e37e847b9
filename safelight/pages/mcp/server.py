"""The server that an agent's client starts: it listens on stdin and answers on stdout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

from safelight import __version__
from safelight.errors import SafelightError, UsageError
from safelight.pages.mcp.tools import RunReader

INSTRUCTIONS = (
    "Safelight watches the training of diffusion models. Start with list_runs. read_run has the verdict of one run; "
    "diagnose has the evidence and the fix of every finding; read_picture shows its samples. No tool changes a run."
)


def serve(roots: Sequence[Path]) -> None:
    make_server(roots).run("stdio")


def make_server(roots: Sequence[Path]) -> Any:
    """Every tool is a method of `RunReader`, with its docstring as the description."""
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver import Image
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp.types import ToolAnnotations
    except ImportError as error:
        raise UsageError("`safelight mcp` needs the package mcp: pip install 'safelight[mcp]'") from error
    reader, server = RunReader(roots), MCPServer("safelight", version=__version__, instructions=INSTRUCTIONS)

    def in_words(tool: Callable[..., Any]) -> Callable[..., Any]:
        """What a user can cause is an answer, not a crash of the server."""

        @wraps(tool)
        def call(*args: Any, **named: Any) -> Any:
            try:
                return tool(*args, **named)
            except SafelightError as error:
                raise ToolError(str(error)) from error

        return call

    def read_picture(run: str, step: int | None = None, kind: str = "samples") -> Any:
        content, form = reader.read_picture(run, step, kind)
        return Image(data=content, format=form)

    read_picture.__doc__ = RunReader.read_picture.__doc__
    tools = (reader.list_runs, reader.read_run, reader.diagnose, reader.read_metrics, reader.compare, read_picture,
             reader.explain, reader.find_setting)  # fmt: skip
    for tool in tools:
        annotations = ToolAnnotations(read_only_hint=True, open_world_hint=False)
        server.tool(annotations=annotations, structured_output=False)(in_words(tool))
    return server
