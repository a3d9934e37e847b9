"""Whatever a command is given and wherever it prints: words, an exit code, and nothing that a terminal obeys."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.table import Table

from safelight import printing
from safelight.cli import main
from safelight.printing import OutputLost, PrintableStream, open_console, print_error, printable_streams

HOSTILE = "a\x1b]52;c;aGk=\x07\x9b2J\r\u202eb\u200b\ud800\udcff"
OBEYED = ("\x1b", "\x07", "\x9b", "\r", "\u202e", "\u200b")


class Failing(io.StringIO):
    """A disk that is full, or a reader that went away."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        raise self.error

    def flush(self) -> None:
        raise self.error


class Latin(io.TextIOWrapper):
    def __init__(self, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding=encoding)

    def text(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode(self.encoding)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 141, ""),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "Standard output cannot be written: No space left"),
        (OSError(errno.EIO, "Input/output error"), 1, "Standard output cannot be written"),
        (ValueError("I/O operation on closed file"), 1, "closed file"),
    ],
)
@pytest.mark.parametrize(
    "arguments", [["settings"], ["--help"], ["explain"], ["settings", "--help"], ["docs", "--json"]]
)
def test_a_stdout_that_takes_no_more(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], error: Exception, code: int, words: str
) -> None:
    monkeypatch.setattr(printing, "discard_output", lambda: None)
    err = io.StringIO()
    monkeypatch.setattr(sys, "stdout", Failing(error))
    monkeypatch.setattr(sys, "stderr", err)
    assert main(arguments) == code
    assert words in err.getvalue()
    assert "Traceback" not in err.getvalue()
    assert bool(err.getvalue()) == bool(words)


def test_a_stderr_that_takes_no_more_costs_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Failing(OSError(errno.ENOSPC, "No space left on device")))
    assert main(["trian"]) == 2


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp1252", "utf-16"])
@pytest.mark.parametrize("arguments", [["settings"], ["explain", "LOS001"], ["docs", "torture"], ["--help"]])
def test_output_that_is_not_utf_8(monkeypatch: pytest.MonkeyPatch, encoding: str, arguments: list[str]) -> None:
    out = Latin(encoding)
    monkeypatch.setattr(sys, "stdout", out)
    assert main(arguments) == 0
    assert len(out.text()) > 100


def test_a_closed_stdout_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["settings"]) == 0
    monkeypatch.setattr(sys, "stderr", None)
    assert main(["trian"]) == 2


ENDS = [
    ("{python} -m safelight settings > {full}", 1),
    ("{python} -m safelight settings >&-", 0),
    ("{python} -m safelight settings 2>&- >&- <&-", 0),
    ("{python} -m safelight settings | true; exit ${{PIPESTATUS[0]}}", 141),
]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(("command", "code"), ENDS)
def test_real_streams_end_without_a_traceback(command: str, code: int) -> None:
    shell = ["bash", "-c", command.format(python=sys.executable, full="/dev/full")]
    done = subprocess.run(shell, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, "Traceback" in done.stderr, "Exception ignored" in done.stderr) == (code, False, False)


def test_a_file_never_gets_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    """Else what is printed would land in a checkpoint."""
    script = (
        "import os, safelight.__main__ as m; m.open_missing_streams(); open('kept', 'w').write(str(os.open('.', 0)))"
    )
    command = ["bash", "-c", f'exec {sys.executable} -c "{script}" <&- >&- 2>&-']
    subprocess.run(
        command, cwd=tmp_path, timeout=300, check=True, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    )
    assert int((tmp_path / "kept").read_text()) > 2


@pytest.mark.parametrize("write", [lambda out: out.write(HOSTILE), lambda out: out.writelines([HOSTILE])])
def test_a_stream_lets_nothing_through_that_a_terminal_obeys(write: Callable[[PrintableStream], object]) -> None:
    inner = io.StringIO()
    write(PrintableStream(inner, needed=True))
    assert not any(sign in inner.getvalue() for sign in OBEYED)
    assert inner.getvalue().encode("utf-8")
    assert "\\x1b]52;c;aGk=" in inner.getvalue()


def test_lines_tabs_and_colours_stay() -> None:
    inner = io.StringIO()
    PrintableStream(inner, needed=True).write("a\tb\n\x1b[1;31mred\x1b[0m é 猫 👩‍🚀\n")
    assert inner.getvalue() == "a\tb\n\x1b[1;31mred\x1b[0m é 猫 👩‍🚀\n"


def test_a_console_draws_text_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Markup in a name would be a colour, a link, or an error of the parser."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    table = Table("[/bold]", HOSTILE)
    table.add_row("[red]x[/red] :smile:", HOSTILE)
    open_console(width=200).print(table, "[/x]")
    assert "[red]x[/red] :smile:" in out.getvalue()
    assert not any(sign in out.getvalue() for sign in OBEYED)


def test_an_error_is_one_line_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(f"a name\nError: forged {HOSTILE}" + "x" * 10_000)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert not any(sign in said for sign in OBEYED)
    assert len(said) < 4100


# The last line of defence


def crash(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("safelight.config.search.search", fail)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("error", [ValueError(f"odd\n{HOSTILE}"), RecursionError(), AssertionError(), KeyError("x"),
                                   UnicodeEncodeError("ascii", "ü",
                                   0, 1, "no"), OSError("without a number"), Unprintable()])  # fmt: skip
def test_what_is_not_foreseen_ends_in_three_lines_and_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, error: Exception
) -> None:
    monkeypatch.setenv("SAFELIGHT_CACHE", str(tmp_path))
    crash(monkeypatch, error)
    assert main(["settings", "ema"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 3
    assert type(error).__name__ in said[0]
    path = Path(said[1].removeprefix("The traceback is in "))
    assert path.parent == tmp_path / "crashes"
    assert path.stat().st_mode & 0o777 == 0o600
    assert "Traceback (most recent call last)" in path.read_text()
    assert "['settings', 'ema']" in path.read_text()


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (KeyboardInterrupt(), 130, "Interrupted."),  # which is no error
        (MemoryError(), 4, "Out of memory"),
        (OSError(errno.ENOSPC, "No space left on device", "x\ny"), 1, "x y cannot be used: No space left on device."),
    ],
)
def test_what_is_foreseen_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, words: str
) -> None:
    crash(monkeypatch, error)
    assert main(["settings", "ema"]) == code
    said = capsys.readouterr().err
    assert said.removeprefix("Error: ").startswith(words)
    assert said.startswith("Error: ") == (code != 130)
    assert said.count("\n") == 1


@pytest.mark.parametrize("place", ["safelight.config.translation.translate", "tyro.cli"])
def test_also_while_flags_are_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, place: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("odd")

    monkeypatch.setenv("SAFELIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr(place, fail)
    assert main(["settings"]) == 1
    assert "ValueError: odd" in capsys.readouterr().err


def test_a_cache_that_cannot_be_written_leaves_the_temporary_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SAFELIGHT_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = printing.keep_traceback(ValueError("odd"), ["x"])
    assert path is not None
    assert path.parent == tmp_path


def test_an_error_that_cannot_be_printed_has_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SAFELIGHT_CACHE", str(tmp_path))
    path = printing.keep_traceback(Unprintable(), ["x"])
    assert path is not None
    assert "Unprintable" in path.read_text()


def test_a_thread_that_dies_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("SAFELIGHT_CACHE", str(tmp_path))
    with printable_streams():
        thread = threading.Thread(target=lambda: 1 / 0, name="odd")
        thread.start()
        thread.join()
    said = capsys.readouterr().err
    assert said.startswith("Error: Thread odd ended: ZeroDivisionError")
    assert said.count("\n") == 1


def test_streams_come_back() -> None:
    before = sys.stdout, sys.stderr, threading.excepthook
    with pytest.raises(OutputLost), printable_streams():
        raise OutputLost(OSError())
    assert (sys.stdout, sys.stderr, threading.excepthook) == before
