"""What reaches a terminal: printable text in an encoding that it has, and the last words after a crash."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from safelight.errors import SafelightError
from safelight.words import one_line, printable_lines

LONGEST_ERROR = 4000  # characters of one message


class OutputLost(SafelightError):
    """Standard output took no more: whoever read it went away, or its disk is full."""

    is_of_output = True

    def __init__(self, error: Exception) -> None:
        words = getattr(error, "strerror", None) or str(error)
        super().__init__(f"Standard output cannot be written: {words}. What was printed is not whole.")
        gone = isinstance(error, BrokenPipeError)
        self.exit_code, self.reported = (141, True) if gone else (1, None)


class EncodedStream:
    """A stream that takes any text: what its encoding lacks is replaced. One that is not `needed` never raises."""

    def __init__(self, inner: TextIO, *, needed: bool) -> None:
        self._inner, self._needed = inner, needed

    def write(self, text: str) -> int:
        encoding = getattr(self._inner, "encoding", None) or "utf-8"
        try:
            text.encode(encoding)
        except UnicodeError:
            text = text.encode(encoding, "replace").decode(encoding)
        self._attempt(lambda: self._inner.write(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self._attempt(self._inner.flush)

    def _attempt(self, act: Callable[[], object]) -> None:
        try:
            act()
        except (OSError, ValueError) as error:  # ValueError: it was closed
            if self._needed:
                raise OutputLost(error) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class PrintableStream(EncodedStream):
    """Also escapes what would steer a terminal; colours pass. Consoles of rich write to `rich_proxied_file`: what they
    draw is theirs, and `open_console` escapes the text in it."""

    def __init__(self, inner: TextIO, *, needed: bool) -> None:
        super().__init__(inner, needed=needed)
        self.rich_proxied_file = EncodedStream(inner, needed=needed)

    def write(self, text: str) -> int:
        return super().write(printable_lines(text))


class PrintableConsole(Console):
    """Text is text: no markup, no emoji codes, nothing that steers the terminal but rich itself."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable_lines(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        raise OutputLost(BrokenPipeError())


def open_console(*, stderr: bool = False, quiet: bool = False, width: int | None = None) -> Console:
    return PrintableConsole(stderr=stderr, quiet=quiet, width=width, highlight=False, markup=False, emoji=False)


def print_error(text: str) -> None:
    words = one_line(text)
    words = words if len(words) <= LONGEST_ERROR else words[: LONGEST_ERROR - 1] + "…"
    with suppress(OSError, OutputLost):
        open_console(stderr=True).print(Text.assemble(("Error: ", "bold red"), words), soft_wrap=True)


@contextlib.contextmanager
def printable_streams() -> Iterator[None]:
    """While entered, stdout and stderr take any text, and a thread that dies says so in words."""
    before = sys.stdout, sys.stderr, threading.excepthook
    with contextlib.ExitStack() as stack:
        # Closed by whoever started this: there is no stream then, and nobody wants what is printed.
        out, err = (stream or stack.enter_context(open(os.devnull, "w")) for stream in before[:2])
        sys.stdout, sys.stderr = PrintableStream(out, needed=True), PrintableStream(err, needed=False)  # type: ignore[assignment]
        threading.excepthook = _report_thread
        try:
            yield
        finally:
            sys.stdout, sys.stderr, threading.excepthook = before


def discard_output() -> None:
    """What is left in the buffer of a stdout that takes no more would be tried again at the end of the process."""
    with suppress(Exception):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.__stdout__.fileno())  # type: ignore[union-attr]
        os.close(nowhere)


def report_crash(error: BaseException, command: Sequence[str]) -> None:
    """Three lines: what happened, where the traceback is, what to do."""
    path = keep_traceback(error, command)
    try:
        words = one_line(f"{type(error).__name__}: {error}")[:300]
    except Exception:  # an error that has no words
        words = type(error).__name__
    print_error(f"Something happened that Safelight does not know how to handle: {words}")
    where = f"The traceback is in {path}" if path else "The traceback could not be kept: no folder can be written."
    print(where, file=sys.stderr)
    print(
        "Please report it with that file. Runs on disk are whole: safelight resume RUN continues one.", file=sys.stderr
    )


def keep_traceback(error: BaseException, command: Sequence[str]) -> Path | None:
    """A new file of an unpredictable name that only the user can read: in the cache folder, or the temporary one."""
    from safelight import __version__

    torch = getattr(sys.modules.get("torch"), "__version__", "not loaded")
    head = f"safelight {__version__}, Python {platform.python_version()}, torch {torch}, {platform.platform()}"
    try:
        trace = "".join(traceback.format_exception(error))
    except Exception as failed:  # an error that cannot even be printed
        trace = f"{type(error).__name__}, which could not be printed ({type(failed).__name__})"
    content = "\n".join([head, repr(list(command))[:10_000], trace])
    for folder in (_crashes(), None):
        with suppress(OSError, ValueError):
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
            name = f"crash-{time.strftime('%Y%m%d-%H%M%S')}-"
            handle, path = tempfile.mkstemp(prefix=name, suffix=".txt", dir=folder)
            with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(content)
            return Path(path)
    return None


def _crashes() -> Path | None:
    with suppress(RuntimeError, ValueError):  # no home
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "safelight"
        return Path(os.environ.get("SAFELIGHT_CACHE") or base).expanduser() / "crashes"
    return None


def _report_thread(failed: threading.ExceptHookArgs) -> None:
    """The command goes on: its other threads may not need this one."""
    if failed.exc_value is None or isinstance(failed.exc_value, SystemExit | OutputLost):
        return
    path = keep_traceback(failed.exc_value, sys.argv)
    name = failed.thread.name if failed.thread else "?"
    print_error(f"Thread {name} ended: {type(failed.exc_value).__name__}: {failed.exc_value}. Traceback: {path}")
