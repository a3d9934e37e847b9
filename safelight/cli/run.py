"""safelight run"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from safelight.cli.flags import options
from safelight.cli.flags.linting import LintFlags, LintTarget, relative
from safelight.errors import UsageError
from safelight.watching.scripts.launch import Options, is_first_by_environment, run_script

FLAGS_WITH_VALUE = (
    "--run",
    "--steps",
    "--loggers",
    "--select",
    "--ignore",
    "--baseline",
    "--sarif",
)  # options that are followed by a word


@dataclass(frozen=True, kw_only=True)
class Command(LintFlags):
    """Run a training script unchanged, as `python SCRIPT ARGS` would, and watch what it trains. Options before the
    script are those below; everything after it belongs to the script.

    For example: safelight run train.py --lr 1e-4, or safelight run --run runs/mine -m project.train --config a.yaml, or
    safelight run --check train.py, or torchrun --nproc-per-node 2 -m safelight run train.py

    What is seen is printed on stderr and recorded in the run folder; the script's own output and exit code stay as they
    are. With --check the script is stopped after a few updates, every rule is listed, and the exit code is 0 (nothing
    found), 3 (nothing could be checked), 5 (errors found), or that of a script that failed. SAFELIGHT=off switches the
    watch off.
    """

    script: Annotated[
        tuple[str, ...], Positional, arg(metavar="SCRIPT | -m MODULE [ARGS…]", help_behavior_hint="")
    ] = ()
    """A file, a folder or a zip with __main__.py, or a module; then its arguments."""
    run: Annotated[str | None, arg(metavar="DIR", help_behavior_hint="")] = None
    """Folder of the record; must not hold one yet. Without it: runs/watch-1, …; with --check none is kept."""
    steps: options.Number = None
    """Updates that are planned in all; with --check, updates until the script is stopped (20)."""
    loggers: options.Word = None
    """tensorboard, wandb, jsonl, or several with commas between."""
    quiet: options.Flag = False
    """Print nothing while the script runs; with --check, only the findings and the verdict."""
    check: options.Flag = False
    """Train a few updates, stop the script, and print what is right, wrong and unknown about it."""
    strict: options.Flag = False
    """With --check: warnings fail too."""
    json: Annotated[bool, arg(help="With --check: print JSON. What the script prints goes to stderr.")] = False

    def run_script(self, target: Sequence[str], *, owns_process: bool) -> int:
        if self.script or not target:
            raise UsageError("Name a script: safelight run train.py, or safelight run -m project.train")
        given = Options(
            run=self.run,
            steps=options.whole("--steps", self.steps, at_least=1),
            loggers=tuple(word.strip() for word in (self.loggers or "").split(",") if word.strip()),
            quiet=self.quiet,
        )
        if self.check:
            return self._check(given, target, owns_process)
        if strange := next((field.name for field in fields(LintFlags) if getattr(self, field.name)), None):
            raise UsageError(f"--{strange.replace('_', '-')} belongs to --check.")
        if self.strict:
            raise UsageError("--strict belongs to --check.")
        return run_script(given, target, owns_process=owns_process)

    def _check(self, given: Options, target: Sequence[str], owns_process: bool) -> int:
        from safelight.diagnosis.linting.selection import load_selection
        from safelight.watching.scripts.check import check_script

        subject = subject_of(target)
        load_selection(self.select, self.ignore, subject.script)  # a wrong name is refused before the script runs
        report = check_script(
            given,
            target,
            owns_process=owns_process,
            to_stderr=self.json or self.sarif == "-",
            narrow=lambda found: self.narrow(found, subject),
        )
        if not is_first_by_environment():  # the first one judges; launchers take any other code for a failure
            return report.code if report.has_failed else 0
        if not (report.diagnosis is not None and self.write_sarif(report.diagnosis, subject)):
            words = report.words(quiet=self.quiet, every_rule=self.all)
            text = json.dumps(report.to_json(self.strict), indent=1) if self.json else words
            print(text, file=sys.stderr if self.sarif == "-" else sys.stdout, flush=True)
        return report.exit_code(self.strict)


def subject_of(target: Sequence[str]) -> LintTarget:
    """The script, whose comments count, as far as it is a file."""
    file = Path(f"{target[1].replace('.', os.sep)}.py") if target[0] == "-m" and len(target) > 1 else Path(target[0])
    return LintTarget(relative(file), file) if file.is_file() else LintTarget(" ".join(target[:2]))


def divide(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """(our options, the script and its arguments)."""
    place = 0
    while place < len(words):
        word = words[place]
        if word == "--":
            return list(words[:place]), list(words[place + 1 :])
        if word == "-m" or word == "-" or not word.startswith("-"):
            break
        place += 2 if word in FLAGS_WITH_VALUE else 1
    return list(words[:place]), list(words[place:])
