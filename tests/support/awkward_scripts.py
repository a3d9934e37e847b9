"""Small scripts of every awkward kind, for comparing how they run: each with its files and how it is started."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Script:
    name: str
    text: str | bytes = ""
    """Of main.py."""
    target: tuple[str, ...] = ("main.py",)
    files: dict[str, str | bytes] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    """Of python."""
    environment: dict[str, str] = field(default_factory=dict)
    stdin: bytes | None = b""
    """None: closed."""
    stdout: str = "pipe"
    """pipe; broken: a pipe that nobody reads; closed."""
    code: int = 0
    """The exit code that python has; negative: the signal that ended it."""


SPAWNED = """
import multiprocessing, os, sys
class Point:
    def __init__(self, x): self.x = x
def work(point):
    return point.x + 1, __name__, type(point).__module__, sys.argv[1:]
print("imported as", __name__, flush=True)
if __name__ == "__main__":
    with multiprocessing.get_context({kind!r}).Pool(1) as pool:
        print(pool.map(work, [Point(1), Point(2)]))
"""
FACTS = """
import os, sys
print(sorted(globals()), __name__, __spec__, __package__, __doc__)
print(type(__loader__).__name__, __builtins__ is __import__("builtins"), __annotations__, __file__)
print(sys.argv, sys.orig_argv, sys.path, sys.modules["__main__"].__dict__ is globals())
print(sorted(os.environ.items()), sys.flags, sys.warnoptions, sys._xoptions)
print(sorted(set(sys.modules) - {"atexit"}), [type(each).__name__ for each in sys.path_hooks])
"""
PACKAGE = {
    "pack/__init__.py": "print('package', __name__)\n",
    "pack/__main__.py": "from . import part\nfrom .part import value\nprint(value, __package__, __spec__.name)\n",
    "pack/part.py": "value = 3\n",
    "pack/alone.py": "import sys\nfrom .part import value\nprint(value, __name__, sys.argv[1:], __file__)\n",
    "bare/__init__.py": "",
}

SCRIPTS = (
    Script(
        "arguments", "import sys; print(sys.argv)", ("main.py", "--lr", "1e-4", "", "a b", "ä", "--", "-m", "--help")
    ),
    Script("facts", FACTS, ("main.py", "x")),
    Script("facts with flags", FACTS, flags=("-u", "-O", "-W", "error", "-X", "dev", "-b")),
    Script("exit number", "import sys; sys.exit(3)", code=3),
    Script("exit text", "import sys; sys.exit('no such data')", code=1),
    Script("exit float", "import sys; sys.exit(2.5)", code=1),
    Script("exit at once", "import os; print('lost', end=''); os._exit(7)", code=7),
    Script(
        "exception",
        "def f():\n    return {}['x']\n\ntry:\n    f()\nexcept KeyError as e:\n    raise ValueError('y') from e",
        code=1,
    ),
    Script("exception group", "raise ExceptionGroup('all', [ValueError(1), TypeError(2)])", code=1),
    Script("recursion", "def f(): f()\nf()", code=1),
    Script("syntax error", "print('never')\nif x =\n", code=1),
    Script("null bytes", b"print(1)\n\0\n", code=1),
    Script("import error", "import sub", files={"sub.py": "import no_such_module"}, code=1),
    Script("keyboard interrupt", "raise KeyboardInterrupt", code=-2),
    Script("interrupted", "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)", code=-2),
    Script(
        "terminated",
        "import os, signal, time\nprint('x', flush=True)\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(9)",
        code=-15,
    ),
    Script(
        "terminated, handled",
        "import os, signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "os.kill(os.getpid(), signal.SIGTERM)",
        code=9,
    ),
    Script("aborted", "import os, faulthandler\nfaulthandler.enable()\nos.abort()", code=-6),
    Script(
        "at exit", "import atexit\natexit.register(print, 'first')\natexit.register(print, 'second')\nprint('main')"
    ),
    Script("at exit fails", "import atexit\natexit.register(lambda: 1 / 0)\nprint('main')"),
    Script(
        "threads",
        "import threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(0.05), print('late'))).start()\n"
        "print('main')",
    ),
    Script(
        "thread fails", "import threading\nt = threading.Thread(target=lambda: 1 / 0, name='t')\nt.start()\nt.join()"
    ),
    Script("main guard", "if __name__ == '__main__':\n    print('main')"),
    Script(
        "pickled classes",
        "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A, pickle.dumps(A()))",
    ),
    Script("fork", SPAWNED.format(kind="fork"), ("main.py", "x")),
    Script("spawn", SPAWNED.format(kind="spawn"), ("main.py", "x")),
    Script("forkserver", SPAWNED.format(kind="forkserver")),
    Script(
        "fork that leaves",
        "import os, sys\npid = os.fork()\nif not pid:\n    sys.exit(5)\nprint(os.waitpid(pid, 0)[1])",
    ),
    Script(
        "subprocess",
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'import os, sys; print(sorted(os.environ), sys.path)'])",
    ),
    Script(
        "replaced",
        "import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'print(1); raise SystemExit(6)'])",
        code=6,
    ),
    Script("closed stdin", "import sys\nprint(sys.stdin)\ninput()", stdin=None, code=1),
    Script("read stdin", "import sys\nprint(input('? '), sys.stdin.read(), sys.stdin.isatty())", stdin=b"one\ntwo\n"),
    Script("broken pipe", "print('x')", stdout="broken", code=120),
    Script("closed stdout", "import sys\nprint('x')\nprint(sys.stdout, file=sys.stderr)", stdout="closed"),
    Script("bytes", "import sys\nsys.stdout.buffer.write(bytes(range(256)))"),
    Script("missing file", target=("nothing.py", "x"), code=2),
    Script("from stdin", target=("-", "x"), stdin=b"import sys\nprint(sys.argv, __name__)\nraise ValueError", code=1),
    Script(
        "folder",
        target=("app", "x"),
        files={"app/__main__.py": "import sys, part\nprint(sys.argv, sys.path[0], __file__)", "app/part.py": ""},
    ),
    Script("zip", target=("app.zip", "x"), files={"app.zip": "ZIP"}),
    Script("module", target=("-m", "tool", "--flag", "-x"), files={"tool.py": FACTS}),
    Script("package", target=("-m", "pack", "x"), files=PACKAGE),
    Script("package without main", target=("-m", "bare"), files=PACKAGE, code=1),
    Script("missing module", target=("-m", "nothing.here"), code=1),
    Script("module of the library", target=("-m", "calendar", "2024", "2")),
    Script(
        "changes folder",
        "import os\nos.mkdir('sub')\nos.chdir('sub')\nopen('out', 'w').write('x')\nimport part\nprint(__file__)",
        files={"part.py": ""},
    ),
    Script("deletes itself", "import os\nos.remove(__file__)\nraise ValueError", code=1),
    Script(
        "own source",
        "import inspect, linecache\ndef f():\n    return 1  # here\n"
        "print(inspect.getsource(f), linecache.getline(__file__, 3), inspect.getfile(f), inspect.stack()[-1].filename)",
    ),
    Script(
        "arguments wrong",
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--lr', type=float, required=True)\nprint(p.parse_args())",
        ("main.py", "--lr", "x"),
        code=2,
    ),
    Script(
        "warnings",
        "import warnings\nwarnings.warn('old')\nwarnings.warn('x', DeprecationWarning)\nprint(warnings.filters)",
    ),
    Script("warnings are errors", "import warnings\nwarnings.warn('old')", flags=("-Werror",), code=1),
    Script(
        "logging",
        "import logging\nlogging.basicConfig(level=10)\nlogging.info('x')\nprint(logging.getLogger().handlers)",
    ),
    Script("excepthook", "import sys\nsys.excepthook = lambda *a: print('hook', a[0].__name__)\n1 / 0", code=1),
    Script(
        "trace",
        "import sys\nlines = []\ndef trace(f, e, a):\n"
        "    lines.append((f.f_code.co_name, e))\n    return trace\ndef g():\n    return 2\n"
        "sys.settrace(trace)\ng()\nsys.settrace(None)\nprint(lines, sys.gettrace())",
    ),
    Script("latin-1", "# -*- coding: latin-1 -*-\nprint('é', ascii('é'))".encode("latin-1")),
    Script("byte order mark", b"\xef\xbb\xbfprint('x')\n"),
    Script("future", "from __future__ import annotations\nx: no_such = 1\ny: int\nprint(__annotations__)"),
    Script(
        "tests",
        "import unittest\nclass T(unittest.TestCase):\n"
        "    def test(self): self.assertTrue(0)\nunittest.main(argv=['x', '-q', 'no'])",
        code=1,
    ),
    Script("objects at the end", "class A:\n    def __del__(self): print('gone')\na = A()\na.me = a\nb = A()"),
    Script(
        "stderr replaced",
        "import sys\nsys.stderr = open('log', 'w')\nprint('x', file=sys.stderr)\nraise ValueError",
        code=1,
    ),
    Script(
        "own sitecustomize",
        "import sitecustomize\nprint(sitecustomize.__file__, sitecustomize.x)",
        environment={"PYTHONPATH": "site"},
        files={"site/sitecustomize.py": "x = 1"},
    ),
    Script(
        "modules of its own",
        "import yaml, rich, json, tyro\nprint(yaml.x, rich.x, tyro.x)",
        files={f"{name}.py": "x = 1" for name in ("yaml", "rich", "tyro")},
    ),
    Script(
        "asyncio",
        "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    raise SystemExit(8)\nasyncio.run(f())",
        code=8,
    ),
    Script(
        "another torch",
        "import torch\n"
        "print(torch.x, torch.__loader__ is torch.__spec__.loader, type(torch.__loader__).__name__, torch.__file__)",
        files={"torch.py": "x = 1"},
    ),
    Script(
        "a torch that fails",
        "import torch",
        files={"torch/__init__.py": "from torch import part", "torch/part.py": "raise OSError('no driver')"},
        code=1,
    ),
    Script(
        "torch is looked for",
        "import importlib.util\ns = importlib.util.find_spec('torch')\nprint(s.origin, s.loader.get_filename('torch'))",
        files={"torch.py": "x = 1"},
    ),
)
