"""Builds the wheel, installs it into a fresh environment, and tries what a person would try first.

    python -m tools.wheel            # leaves the wheel in dist/
    python -m tools.wheel --no-train # without the training

The environment sees the packages of the one that runs this, but not this repository: only the wheel has safelight.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
TINY = (
    *("model.widths=[16]", "model.norm_groups=8", "model.attention=[]", "model.layers=1", "model.conditional=false"),
    *("sample.steps=2", "sample.count=4", "train.preflight=off", "train.batch_size=16", "ema.snapshots=2"),
)


def build(out: Path) -> Path:
    """The wheel of what git knows of, changed or not: no build folder and no stray file gets into it."""
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "safelight"
        listed = _run("git", "-C", str(REPOSITORY), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        for name in filter(None, listed.split("\0")):
            if not os.path.lexists(REPOSITORY / name):
                continue  # deleted, and not yet committed
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, source / name, follow_symlinks=False)
        pip = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index", "--no-build-isolation")
        _run(*pip, "-w", str(out), str(source))
    [wheel] = out.glob("safelight-*.whl")
    return wheel


def install(wheel: Path, place: Path) -> Path:
    """A new environment with the wheel; returns the path of its command."""
    _run(sys.executable, "-m", "venv", "--without-pip", str(place))
    python = place / "bin" / "python"
    inside = _run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    Path(inside, "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    pip = (sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index")
    _run(*pip, "--force-reinstall", str(wheel))
    return place / "bin" / "safelight"


def attempt(command: Path, folder: Path, *, train: bool = True) -> list[str]:
    """Tries the first commands of a person, in a folder of their own; what came of each, in a line."""

    def safelight(*words: str) -> str:
        return _run(str(command), *words, cwd=folder)

    where = _run(str(command.parent / "python"), "-c", "import safelight; print(safelight.__file__)", cwd=folder)
    assert str(REPOSITORY) not in where, f"safelight was imported from {where}"
    found = [f"help: {len(safelight('--help').splitlines())} lines"]
    pages = json.loads(safelight("docs", "--json"))["pages"]
    assert len(pages) == len(list((REPOSITORY / "docs").glob("*.md"))), f"{len(pages)} pages travel with the wheel"
    assert safelight("docs", "quickstart").startswith("# ")
    found.append(f"docs: {len(pages)} pages")
    assert "LRA001" in safelight("explain", "LRA001")
    if train:
        settings = [word for each in TINY for word in ("--set", each)]
        safelight("train", "digits", "--run", "tried", "--steps", "4", "--evaluate-every", "0", *settings)
        verdict = json.loads(safelight("doctor", "tried", "--json"))["verdict"]
        assert (folder / "tried" / "report.html").stat().st_size > 100_000, "the report has no pages in it"
        found.append(f"train and doctor: {verdict}")
    return found


def _run(*words: str, cwd: Path | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)} ended with {done.returncode}:\n{done.stderr[-2000:]}"
    return done.stdout


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-train", action="store_true", help="without the training")
    given = parser.parse_args(words)
    out = REPOSITORY / "dist"
    shutil.rmtree(out, ignore_errors=True)
    wheel = build(out)
    print(f"{wheel.relative_to(REPOSITORY)}: {wheel.stat().st_size / 1e6:.1f} MB")
    with tempfile.TemporaryDirectory() as temporary:
        command = install(wheel, Path(temporary) / "environment")
        for line in attempt(command, Path(temporary), train=not given.no_train):
            print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
