"""Python programs in processes of their own, forked from one that has imported what they take from others: torch and
diffusers cost seconds, and are the same for all. Safelight itself, each imports anew."""

from __future__ import annotations

import atexit
import json
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

OTHERS = ("torch", "sklearn.datasets", "accelerate", "diffusers.training_utils", "diffusers.pipelines.ddim")
OTHERS += ("diffusers.models.unets.unet_2d", "diffusers.schedulers.scheduling_ddpm", "pytorch_lightning")


class FreshPython:
    """Runs `python words` in a folder, one program after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        words = [sys.executable, __file__, str(folder / "compiled")]
        surroundings = os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
        self._server = subprocess.Popen(words, stdin=-1, stdout=-1, text=True, env=surroundings)

    def __enter__(self) -> FreshPython:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, where: TracebackType | None) -> None:
        self._server.communicate()  # without another word, it ends

    def run(self, folder: Path, *words: str, path: Path | None = None) -> tuple[int, str, str]:
        """The exit code, and what was written on both streams; `path`: as PYTHONPATH."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        names = [tempfile.mkstemp(dir=self._folder)[1] for _ in range(2)]
        print(json.dumps([str(folder), words, names, path and str(path)]), file=self._server.stdin, flush=True)
        code = int(self._server.stdout.readline())
        out, err = (Path(name).read_text(encoding="utf-8") for name in names)
        return code, out, err


# --- in the other process ------------------------------------------------------------------------------------------


def _serve(compiled: str) -> None:
    sys.dont_write_bytecode, sys.pycache_prefix = False, compiled  # the first program compiles for all
    for name in OTHERS:
        __import__(name)
    assert "safelight" not in sys.modules
    del sys.path[0]  # the folder of this file: a program has its own there
    for line in sys.stdin:
        given = json.loads(line)
        pid = os.fork()
        if not pid:
            _become(*given)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    os._exit(0)  # nothing of its own is left to end


def _become(folder: str, words: list[str], names: list[str], path: str | None) -> None:
    code: Any = 1
    try:
        for number, name in enumerate(names, 1):
            os.dup2(os.open(name, os.O_WRONLY), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(folder)
        sys.path[:0] = [path] if path else []
        _start(words)
        code = 0
    except SystemExit as left:
        code = left.code or 0
    except BaseException:
        traceback.print_exc()
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # as every interpreter ends: with its threads, then in order
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _start(words: list[str]) -> None:
    first, *rest = words
    if first == "-m":
        sys.argv, sys.path[:0] = rest, [os.getcwd()]
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv, sys.path[:0] = ["-c", *rest[1:]], [os.getcwd()]
        exec(rest[0], {"__name__": "__main__"})
    else:
        sys.argv, sys.path[:0] = words, [str(Path(first).parent)]
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    _serve(sys.argv[1])
