"""The command line as a reader of inputs: in this process, with what it printed, and what no command may do."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from safelight.cli import main
from safelight.errors import SafelightError
from safelight.words import printable_lines

CODES = {0, 1, 2, 3, 4, 5, 75, 130, 141}
MOST_LINES = 60  # of a refusal
TINY: dict[str, Any] = {
    "train.steps": 2, "train.batch_size": 4, "train.device": "cpu", "train.threads": 1, "train.preflight": "off",
    "model.widths": "8", "model.norm_groups": 4, "model.layers": 1, "model.attention": "", "model.conditional": False,
    "sample.steps": 2, "sample.count": 2, "evaluate.every": 0, "ema.snapshots": 1, "checkpoint.every": 1,
}  # fmt: skip


class Refusal(SafelightError):
    """A command that ended in words with another exit code than 0."""


def answer(arguments: Sequence[str]) -> str:
    """What a command printed to stdout; raises `Refusal` where it ended in words, AssertionError where it did not."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = ended.code
    said = err.getvalue()
    assert "Traceback (most recent" not in said + out.getvalue(), said[-400:]
    assert not kept_crashes(), f"{said[:300]} {last_line(kept_crashes()[0])}"
    assert code in CODES, f"exit code {code!r}: {said[:200]}"
    assert printable_lines(said) == said, f"unprintable: {said[:200]!r}"
    if code == 0:
        return out.getvalue()
    assert said.strip(), f"exit code {code} without a word"
    assert len(said.splitlines()) <= MOST_LINES, f"{len(said.splitlines())} lines: {said[:200]}"
    raise Refusal(said)


def kept_crashes() -> list[Path]:
    return sorted((Path(os.environ["SAFELIGHT_CACHE"]) / "crashes").glob("*"))


def last_line(crash: Path) -> str:
    """Of a traceback: the place and the error; the file is removed, so that the next case starts clean."""
    lines = crash.read_text().strip().splitlines()
    places = [line.strip() for line in lines if "safelight/" in line and "line " in line]
    shutil.rmtree(crash.parent)
    return f"{places[-1] if places else ''} {lines[-1]}"[-300:]


def start_nothing(command: Sequence[str], environment: Mapping[str, str], **_: object) -> int:
    """In the place of what starts python on a script: the same refusals, and no script."""
    for word in (*command, *environment, *environment.values()):
        if b"\0" in os.fsencode(word):
            raise ValueError("embedded null byte")
    return 0


def stand_still() -> None:
    """Commands that would serve, fetch or open something for ever come back at once."""
    from safelight.evaluate.networks import fetch
    from safelight.pages.mcp import server
    from safelight.pages.server import process
    from safelight.watching.scripts import check, launch

    def refuse(*_: object, **__: object) -> None:
        raise Refusal("Nothing is fetched in a trial.")

    process.serve = lambda *_, **__: None
    server.serve = lambda *_: None
    launch.run_inside = check.run_child = start_nothing  # type: ignore[assignment]
    fetch.get_inception = refuse
    sys.modules["webbrowser"] = None  # type: ignore[assignment]
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"
    os.environ["NO_COLOR"] = "1"


def leave_after(steps: int) -> None:
    """Every training gets a SIGTERM after so many steps: however long it would be, it ends saved."""
    from safelight.training import loop

    class Impatient:
        def __init__(self) -> None:
            self._asked = 0

        def __enter__(self) -> Impatient:
            return self

        def __exit__(self, *_: object) -> None: ...

        @property
        def os_signal(self) -> int:
            self._asked += 1  # twice in each step
            return 15 if self._asked >= 2 * steps else 0

    loop.Interrupts = Impatient  # type: ignore[assignment,misc]


def train_tiny(folder: Path, **settings: Any) -> Path:
    """A small run that was trained by the command line."""
    words = [f"--set={key}={value}" for key, value in (TINY | settings).items()]
    answer(["train", "--run", str(folder), *words])
    return folder
