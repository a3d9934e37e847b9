"""What a run was started by: its command, its script, and the state of their code."""

from __future__ import annotations

import hashlib
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import safelight

GIT_SECONDS = 3.0  # for one question; a repository that takes longer is not described
MAX_COMMAND, MAX_SCRIPT_BYTES, MAX_COMMANDS = 4000, 10_000_000, 20
PACKAGES = (
    "torch",
    "diffusers",
    "accelerate",
    "transformers",
    "lightning",
    "pytorch_lightning",
    "numpy",
    "safetensors",
)
SECRET = re.compile(r"token|secret|passw|api[-_]?key|credential|notify|webhook|auth", re.I)
LOGIN = re.compile(r"(?<=://)[^/@\s]+@")
HIDDEN = "…"


def origin(*, is_captured: bool = False) -> dict[str, Any]:
    """Facts for run.json. `is_captured`: the script was put under watch by `safelight run`."""
    script = main_script()
    return {
        "command": command(is_captured=is_captured),
        "script": None if script is None else _describe_script(script),
        "code": commit_of(Path(safelight.__file__).parent),
        "packages": packages(),
    }


def command(*, is_captured: bool = False) -> str | None:
    """As a person would type it again, without words that look secret; None in a notebook or a console."""
    main = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if file is None:
        return None
    arguments = without_secrets(getattr(sys, "argv", [])[1:])
    if is_ours(_program()):
        words = ["safelight", *arguments]
    else:
        module = spec.name.removesuffix(".__main__") if spec is not None and spec.name != "__main__" else None
        target = ["-m", module] if module else [str(_program()) if _program().name else Path(file).name]
        words = [*(["safelight", "run"] if is_captured else ["python"]), *target, *arguments]
    return shlex.join(words)[:MAX_COMMAND]


def is_ours(program: Path) -> bool:
    """The installed command, or python -m safelight."""
    return program.stem == "safelight" or program == Path(safelight.__file__).parent / "__main__.py"


def without_secrets(words: Sequence[str]) -> list[str]:
    """Values of options such as --token and --notify, and logins in addresses, are left out."""
    shown, is_secret = list[str](), False
    for word in words:
        name, sign, value = word.partition("=")
        if is_secret and not word.startswith("-"):
            shown.append(HIDDEN)
        elif value and SECRET.search(name):
            shown.append(f"{name}{sign}{HIDDEN}")
        else:
            shown.append(LOGIN.sub(f"{HIDDEN}@", word))
        is_secret = word.startswith("-") and not sign and bool(SECRET.search(word))
    return shown


def main_script() -> Path | None:
    """The file that python runs; None for ours, in a notebook and in a console."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    path = Path(file) if isinstance(file, str) else None
    return path if path is not None and path.is_file() and not is_ours(_program()) else None


def _program() -> Path:
    """What was started; a Python inside of another program may have no arguments at all."""
    return Path(sys.argv[0] if getattr(sys, "argv", None) else "")


def _describe_script(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"name": path.name, "sha256": None}
    try:
        if path.stat().st_size <= MAX_SCRIPT_BYTES:
            found["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        pass  # what it was called is known all the same
    return found | (commit_of(path.resolve().parent) or {})


@cache
def commit_of(folder: Path) -> dict[str, Any] | None:
    """{"commit", "changed": whether files differ from it} of the repository that a folder lies in; None without one."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None or not re.fullmatch(r"[0-9a-f]{40,64}", commit):
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ".")
    return {"commit": commit, "changed": None if changes is None else bool(changes)}


def _git(folder: Path, *words: str) -> str | None:
    # No fsmonitor: it would run a program that the repository names. No optional lock: nothing is written.
    line = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", str(folder), *words]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=GIT_SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def packages() -> dict[str, str]:
    """Versions of what is loaded and decides about numbers."""
    loaded = {name: getattr(sys.modules.get(name), "__version__", None) for name in PACKAGES}
    known = {name: str(version) for name, version in loaded.items() if version is not None}
    return {"safelight": safelight.__version__, "python": platform.python_version(), **known}


def commands_with(before: Any, new: str | None) -> list[str]:
    """The commands of a run, the newest last."""
    known = [each for each in before if isinstance(each, str)] if isinstance(before, list) else []
    return (known if new is None else [*known, new])[-MAX_COMMANDS:]
