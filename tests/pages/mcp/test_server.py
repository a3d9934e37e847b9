"""The server as a client meets it: started by a command, asked over its streams."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from recorded_runs import make_run
from showcase import build_run

pytest.importorskip("mcp", reason="needs the package mcp: pip install 'safelight[mcp]'")


async def ask(root: Path, calls: list[tuple[str, dict[str, Any]]]) -> tuple[list[str], list[Any]]:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    server = StdioServerParameters(command=sys.executable, args=["-m", "safelight", "mcp", str(root)])
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        tools = await session.list_tools()
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools.tools)
        return [tool.name for tool in tools.tools], [await session.call_tool(*call) for call in calls]


def test_a_client_reads_runs(tmp_path: Path) -> None:
    build_run(tmp_path / "sound")
    make_run(tmp_path / "sick")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("list_runs", {}),
        ("diagnose", {"run": "sick"}),
        ("read_picture", {"run": "sound"}),
        ("read_run", {"run": "soud"}),
        ("read_metrics", {"run": "sound", "signals": ["loss/mean"], "points": 3}),
    ]
    names, (listed, diagnosed, picture, refused, curve) = anyio.run(ask, tmp_path, calls)
    assert {"list_runs", "read_run", "diagnose", "read_metrics", "compare", "read_picture", "explain"} <= set(names)
    assert {run["name"] for run in json.loads(listed.content[0].text)["runs"]} == {"sound", "sick"}
    assert json.loads(diagnosed.content[0].text)["verdict"]
    assert (picture.content[0].type, picture.content[0].mime_type) == ("image", "image/png")
    assert refused.is_error
    assert "Did you mean 'sound'?" in refused.content[0].text
    assert json.loads(curve.content[0].text)["loss/mean"]["count"] > 0
    changed = {path for path, time in before.items() if path.stat().st_mtime_ns != time}
    assert {path.suffix for path in changed} <= {""}, "only folders, where a reader of the record came and went"
