"""safelight dashboard"""

from __future__ import annotations

import contextlib
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from safelight.cli.flags import options
from safelight.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Command:
    """Show runs in the browser, live while they train and as they are afterwards. Reads only; ends with Ctrl-C."""

    runs: Annotated[tuple[options.PathArgument, ...], Positional, arg(metavar="[RUNS]", help_behavior_hint="")] = ()
    """Folders of runs, or run folders. Without: runs"""
    port: options.Number = None
    """Port to listen on; the next free one if it is taken. Without it: 8642"""
    host: options.Word = None
    """Address to listen on. Anything but this machine itself needs the token that is printed. Without it: 127.0.0.1"""
    open: options.Flag = False
    """Open the page in a browser."""
    idle: options.Number = None
    """End after so many hours in which no page was open. Without it: never"""

    def run_command(self) -> None:
        from safelight.pages.server.address import HERE, PORT, tunnel

        port = PORT if self.port is None else options.number("--port", self.port)
        idle = 0.0 if self.idle is None else options.real("--idle", self.idle, 1e6)
        if not 0 <= port <= 65535:
            raise UsageError(f"--port is {port}, but ports go from 0 to 65535 (0: any that is free).")
        roots = [path.absolute() for path in self.runs or (Path("runs"),)]
        for root in roots:
            if not root.is_dir():
                raise UsageError(f"{root} is no folder. Name a run folder, or a folder of runs.")
        from safelight.pages.server.launch import keep_note
        from safelight.pages.server.process import bind, open_address, serve

        host = self.host or HERE
        listening = bind(host, port)
        address = open_address(host, listening)
        print(f"Dashboard  {address.url}", flush=True)
        if line := tunnel(address):
            print(f"From your own machine:  {line}", file=sys.stderr, flush=True)
        if self.open:
            import webbrowser

            webbrowser.open(address.url)
        with contextlib.suppress(KeyboardInterrupt), keep_note(roots, address) as mark:
            signal.signal(signal.SIGTERM, signal.default_int_handler)  # uvicorn raises it again when it is done
            serve(roots, listening, address, mark=mark, idle_hours=idle)
