"""safelight doctor"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text
from tyro.conf import Positional, arg

from safelight.cli.flags import options
from safelight.cli.flags.linting import LintFlags, LintTarget, relative
from safelight.errors import PreflightError, SafelightError, UsageError
from safelight.run import is_run
from safelight.terminal import ACCENT, Terminal, page
from safelight.words import one_line

if TYPE_CHECKING:
    from safelight.diagnosis import Diagnosis
    from safelight.diagnosis.finding import Evidence


@dataclass(frozen=True, kw_only=True)
class Command(LintFlags):
    """Report what is wrong and why: with a run, from its record, while it trains or after it ended; with a log that
    any other tool wrote; with a data set and settings, before anything is trained; or with a model of your own, by
    `safelight.check`."""

    subject: Annotated[str, Positional, arg(metavar="RUN|LOG|DATA")] = ""
    """A run folder; a log (CSV, JSON, TensorBoard, W&B, text, or a folder with one); or images as `train` takes them,
    for a preflight."""
    loss: Annotated[str | None, arg(metavar="COLUMN")] = None
    """For a log: the column that is the loss, where its name does not say so."""
    module: Annotated[str | None, arg(metavar="MODULE:FUNCTION")] = None
    """A function of your own code, such as train:make, that returns the arguments of `safelight.check` as a dict."""
    preset: options.Word = None
    """For a preflight: digits, tiny, small or base."""
    config: options.File = None
    """For a preflight: YAML file of settings, over the preset."""
    set: options.Settings = ()
    """For a preflight: any setting, over everything else."""

    @property
    def data(self) -> str:
        return self.subject

    def run_command(self) -> None:
        from safelight.diagnosis import diagnose_log, diagnose_run, is_foreign

        if self.module is not None:
            self._check_module(self.module)
            return
        if not self.subject:
            raise UsageError("Name a run, a data set, or a function of your own with --module.")
        has_settings = bool(self.preset or self.config or self.set)
        foreign = self.loss is not None or (not has_settings and is_foreign(Path(self.subject)))
        trained = foreign or is_run(Path(self.subject))
        if trained and has_settings:
            words = "is no data set, so it has its settings. Leave out --preset, --config and --set."
            raise UsageError(f"{self.subject} {words}")
        if foreign:
            found = diagnose_log(self.subject, self.loss)
        else:
            found = diagnose_run(self.subject) if trained else self._preflight()
        subject = LintTarget(self.subject)
        found = self.narrow(found, subject)
        if not self.write_sarif(found, subject):
            if self.json:
                print(json.dumps(found.to_json() | self.listed(found), indent=1))
            else:
                print_diagnosis(self.subject, found)
                self.print_list(found)
        if not trained:
            refuse_errors("preflight", found)

    def _check_module(self, name: str) -> None:
        """The table of a user's model. Its code is run, as `python` would run it."""
        if self.subject or self.preset or self.config or self.set:
            raise UsageError("--module has all that is needed: leave out the data, --preset, --config and --set.")
        arguments = arguments_from(name)
        from safelight.watching.debugger import check

        try:
            inspect.signature(check).bind(**arguments)
        except TypeError as error:
            raise UsageError(f"What {name} returned is not what `safelight.check` takes: {error}.") from error
        report, subject = check(**{**arguments, "say": None}), subject_of(name)
        report = report.narrowed(self.narrow(report.diagnosis, subject))
        if not self.write_sarif(report.diagnosis, subject):
            if self.json:
                print(json.dumps(report.to_json() | self.listed(report.diagnosis), indent=1))
            else:
                print(report)
                self.print_list(report.diagnosis)
        refuse_errors("check", report.diagnosis)

    def _preflight(self) -> Diagnosis:
        config = options.config_from(self)
        from safelight.start import check_before_training

        return check_before_training(config, Terminal())


def refuse_errors(name: str, found: Diagnosis) -> None:
    if errors := sum(finding.severity == "error" for finding in found.findings):
        raise PreflightError(f"The {name} found {errors} error{'s' * (errors != 1)}.")


def arguments_from(name: str) -> dict[str, Any]:
    """What a function returns that is named as module:function; modules of the current folder are found."""
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise UsageError(f"--module is {name!r}. Name a function as module:function, such as train:make.")
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        function = getattr(importlib.import_module(module_name), function_name, None)
        if not callable(function):
            raise UsageError(f"{module_name} has no function {function_name}.")
        found = function()
    except SafelightError:
        raise
    except Exception as error:  # in a user's code
        raise UsageError(f"{name} failed in {here}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(here)
    if not isinstance(found, dict):
        raise UsageError(
            f"{name} returned a {type(found).__name__}. Return a dict of the arguments of `safelight.check`: model, "
            "process, batch, and maybe sampler, optimizer and prediction."
        )
    return found


def subject_of(name: str) -> LintTarget:
    """The file and line of a function that `arguments_from` has called."""
    module_name, _, function_name = name.partition(":")
    function = inspect.unwrap(getattr(sys.modules[module_name], function_name))
    try:
        script, line = inspect.getsourcefile(function), inspect.getsourcelines(function)[1]
    except (OSError, TypeError):
        return LintTarget(name)
    return LintTarget(name) if script is None else LintTarget(relative(Path(script)), Path(script), line)


def print_diagnosis(run: str, found: Diagnosis) -> None:
    """The verdict; of each finding what, since when, how sure, the evidence, what to do, what was ruled out."""
    console = page()
    console.print(Text(one_line(run), style=f"bold {ACCENT}"))
    console.print(Text(one_line(found.verdict)))
    for line in () if found.log is None else found.log.words():
        console.print(Text(one_line(line), style="dim"))
    if found.progress is not None:
        console.print(Text(f"Progress: {found.progress.words()}"))
    if found.samples is not None:
        console.print(Text(f"Samples: {found.samples}"))
    if not found.findings:
        console.print(Text("`safelight explain` lists what the rules look for.", style="dim"))
    for finding in found.findings:
        style = {"error": "bold red", "warning": "bold yellow", "info": "bold"}[finding.severity]
        over = "" if finding.over is None else f", over since step {finding.over:,}"
        console.print()
        head = f"{finding.code} {finding.cause}, since step {finding.step:,}{over}"
        console.print(Text.assemble((finding.severity, style), (f"  {head}", "dim")))
        console.print(Text(f"  {one_line(finding.summary)}"))
        for each in finding.evidence:
            console.print(Text(f"  · {one_line(evidence_in_words(each))}", style="dim"))
        for line in () if finding.batch is None else finding.batch.words():
            console.print(Text(f"  {one_line(line)}"))
        console.print(Text.assemble(("  do  ", ACCENT), one_line(finding.fix.text)))
        for key, value in finding.fix.set.items():
            console.print(Text(f"      --set {key}={value}"))
        for each in finding.ruled_out:
            console.print(Text(f"  not {one_line(each)}", style="dim"))


def evidence_in_words(evidence: Evidence) -> str:
    value = evidence.value if isinstance(evidence.value, str) else f"{evidence.value:.4g}"
    first, last = evidence.steps or (None, None)
    where = "" if first is None else f", step {first:,}" if first == last else f", steps {first:,} to {last:,}"
    return f"{evidence.signal} {value}{where}" + (
        f" (healthy: {evidence.healthy_range})" if evidence.healthy_range else ""
    )
