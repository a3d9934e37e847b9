"""Whether runs that learn badly end with an open finding of the right cause, and whether healthy ones end without any.

    python -m bench.learning                      # 126 bad runs and 78 healthy ones; about 60 minutes on two cores
    python -m bench.learning --before f72717b     # and what the code of that revision says about the same records
    python -m bench.learning --runs DIR --jobs 1  # again after a break: runs that are there are not trained again

Each run trains the digits of 8 px, fashion-mnist or shapes with a small network for 200 steps of 128 images. Bad ones
differ from the healthy ones of the same data and seed by one setting. Not every one of these settings does harm: where
the skill at the end is at least 0.9 of that of the healthy run, there is nothing to be found.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from bench.measure import write_table
from safelight.diagnosis.rules import samples
from safelight.record.history import open_history
from safelight.run import RunFolder
from safelight.vocabulary import SKILL_EMA

ROOT = Path(__file__).parents[1]
STEPS, SMALL = 200, {"model.widths": [16, 32], "model.attention": [], "model.norm_groups": 8, "model.layers": 1}
RATE = 2e-3
SCRIPT = """
import json, sys, safelight
run = safelight.train(sys.argv[1], run=sys.argv[2], settings=json.loads(sys.argv[3]))
if len(sys.argv) > 4:
    run.export(sys.argv[4])
"""
HARMLESS_SHARE = 0.9  # of the skill of the healthy run: whoever ends above has lost nothing
TRAINED = "as it is"  # the healthy run that others are compared with, or begin with
COLLAPSED = tuple(rule.cause for rule in samples.RULES)
DATA: dict[str, dict[str, Any]] = {
    "digits": {},
    "fashion-mnist": {"data.image_size": 8},
    "shapes": {"data.image_size": 8},
}


@dataclass(frozen=True)
class Case:
    kind: str
    name: str
    data: str
    seed: int
    settings: dict[str, Any]
    causes: tuple[str, ...] = ()
    """Those that are right; none for a healthy run."""

    @property
    def folder(self) -> str:
        return f"{self.kind}-{self.name}-{self.data}-{self.seed}".replace(" ", "-").replace("/", "")


def bad(seeds: range, datasets: Sequence[str]) -> Iterator[Case]:
    high, low = ("lr.too-high", "lr.no-warmup", "loss.diverged"), ("lr.too-low",)
    for seed in seeds:
        for data in datasets:
            for factor in (3, 10, 30, 100, 300):
                yield Case("rate too high", f"x{factor}", data, seed, {"optimizer.lr": RATE * factor}, high)
            for factor in (10, 30, 100, 1000):
                yield Case("rate too low", f"d{factor}", data, seed, {"optimizer.lr": RATE / factor}, low)
            for width in (1, 2, 4, 8):
                yield Case("width", f"w{width}", data, seed, narrow(width), ("model.too-small",))
            for factor in (5, 10, 30):
                settings = {"optimizer.lr": RATE * factor, "optimizer.warmup": 0}
                yield Case("no warmup", f"x{factor}", data, seed, settings, high)
            yield Case("short", "40 steps", data, seed, {"train.steps": 40}, ("loss.undertrained",))
            yield Case("EMA", "0.993", data, seed, {"ema.kind": "exponential", "ema.warmup": False, "ema.decay": 0.993},
                       ("ema.too-long", "ema.lags"))  # fmt: skip
            for guidance in (6, 12, 24):
                settings = {"sample.guidance": guidance, "evaluate.every": STEPS, "sample.steps": 16}
                yield Case("collapse", f"guidance {guidance}", data, seed, settings, COLLAPSED)


def narrow(width: int) -> dict[str, Any]:
    return {"model.widths": [width, width], "model.norm_groups": 1, "model.attention": []}


HEALTHY: dict[str, dict[str, Any]] = {
    "as it is": {},
    "half": {"optimizer.lr": RATE / 2},
    "epsilon": {"diffusion.prediction": "epsilon"},
    "sample": {"diffusion.prediction": "sample"},
    "linear": {"diffusion.schedule": "linear", "diffusion.prediction": "epsilon"},
    "batch of 32": {"train.batch_size": 32, "train.steps": 400},
    "wide": {"model.widths": [32, 64]},
    "unconditional": {"model.conditional": False},
    "min-SNR": {"diffusion.weighting": "min-snr"},
    "few images": {"data.held_out": 0.8},
    "fine-tuned": {"model.init": TRAINED, "optimizer.lr": RATE / 20},
    "fine-tuned at a tiny rate": {"model.init": TRAINED, "optimizer.lr": RATE / 2000},
    "evaluated": {"evaluate.every": STEPS, "sample.steps": 16},
}


def healthy(seeds: range, datasets: Sequence[str]) -> Iterator[Case]:
    for seed in seeds:
        for data in datasets:
            for name, settings in HEALTHY.items():
                yield Case("healthy", name, data, seed, settings)


def train(case: Case, folder: Path) -> Path:
    """In a process of its own: a run that crashes is a result as well."""
    run = folder / case.folder
    if not (run / "record.sqlite").exists():
        settings = {"train.steps": STEPS, "train.batch_size": 128, "train.preflight": "tell", "train.threads": 1}
        settings |= {"train.seed": case.seed, "optimizer.lr": RATE, "evaluate.every": 0, "sample.every": STEPS}
        settings |= SMALL | DATA[case.data] | case.settings
        if "model.init" in settings:
            settings["model.init"] = str(folder / "exported" / trained_of(case).folder)
        command = [sys.executable, "-c", SCRIPT, case.data, str(run), json.dumps(settings)]
        if case == trained_of(case):
            command.append(str(folder / "exported" / case.folder))
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if not (run / "record.sqlite").exists():
            raise RuntimeError(f"{case.folder} did not begin: {ended.stderr[-500:]}")
    return run


def trained_of(case: Case) -> Case:
    """The healthy run of the same data and seed."""
    return Case("healthy", TRAINED, case.data, case.seed, {})


def skill_of(run: Path) -> float:
    with open_history(RunFolder(run).record) as history:
        return (history.last(SKILL_EMA.name) or (0, math.nan))[1]


def is_harmed(case: Case, folder: Path) -> bool:
    """Whether it has learnt less than the healthy run; samples that collapse have nothing to do with that."""
    if case.kind in ("collapse", "healthy"):
        return case.kind == "collapse"
    return not skill_of(folder / case.folder) >= HARMLESS_SHARE * skill_of(folder / trained_of(case).folder)


def for_older_code(run: Path, folder: Path, known: dict[str, dict[str, Any]]) -> Path:
    """A copy with none but the settings that older code knows, by section, with its own values where ours is unset."""
    copy = folder / run.name
    copy.mkdir(parents=True, exist_ok=True)
    for name in ("record.sqlite", "run.json"):
        shutil.copy(run / name, copy / name)
    ours = yaml.safe_load((run / "config.yaml").read_text())
    settings = {
        section: {
            key: value for key, value in ours[section].items() if key in old and (value is not None or old[key] is None)
        }
        for section, old in known.items()
    }
    (copy / "config.yaml").write_text(yaml.safe_dump(settings))
    return copy


def settings_of(tree: Path) -> dict[str, dict[str, Any]]:
    """All settings of the code in a tree, with its defaults."""
    script = (
        "import dataclasses, json; from safelight.config import Config; print(json.dumps(dataclasses.asdict(Config())))"
    )
    environment = os.environ | {"PYTHONPATH": str(tree)}
    found = subprocess.run([sys.executable, "-c", script], cwd=tree, env=environment, capture_output=True, check=True)
    return json.loads(found.stdout)


def diagnose(run: Path, tree: Path) -> list[str]:
    """The causes of the findings that are open, the worst first, as the code in `tree` sees them."""
    command = [sys.executable, "-m", "safelight", "doctor", str(run), "--json"]
    found = subprocess.run(
        command, cwd=tree, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(tree)}
    )
    try:
        findings = json.loads(found.stdout)["findings"]
    except ValueError:
        return ["no answer"]
    return [each["cause"] for each in findings if each["severity"] != "info" and each.get("over") is None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", help="a revision whose rules look at the same records")
    parser.add_argument("--runs", type=Path, help="where runs are kept; unset: a temporary folder")
    parser.add_argument("--seeds", type=int, default=2, help="runs of each case")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--kinds", nargs="+", help="only these kinds of cases, such as healthy")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    given = parser.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    trained = [Case("healthy", TRAINED, data, seed, {}) for seed in seeds for data in given.data]
    chosen = [each for each in (*bad(seeds, given.data), *healthy(seeds, given.data)) if each not in trained]
    cases = [*trained, *(each for each in chosen if not given.kinds or each.kind in given.kinds)]
    with tempfile.TemporaryDirectory() as temporary:
        folder, trees = given.runs or Path(temporary) / "runs", {"after": ROOT}
        if given.before:
            trees = {"before": Path(temporary) / "before"} | trees
            subprocess.run(
                ["git", "worktree", "add", "-q", "--detach", str(trees["before"]), given.before], cwd=ROOT, check=True
            )
        try:
            with ThreadPoolExecutor(given.jobs) as pool:
                for each in (trained, cases):  # others begin with them
                    runs = list(pool.map(partial(train, folder=folder), each))
                harmed = [is_harmed(case, folder) for case in cases]
                answers: dict[str, list[list[str]]] = {}
                for name, tree in trees.items():
                    seen = runs
                    if tree != ROOT:
                        known, old = settings_of(tree), Path(temporary) / "old"
                        seen = [for_older_code(run, old, known) for run in runs]
                    answers[name] = list(pool.map(partial(diagnose, tree=tree), seen))
        finally:
            if given.before:
                subprocess.run(["git", "worktree", "remove", "--force", str(trees["before"])], cwd=ROOT, check=False)
    what_is_counted = ("open", "right cause first", "open without harm")
    columns = ["kind", "runs", "harmed", *(f"{name}: {what}" for name in answers for what in what_is_counted)]
    print(
        write_table(
            "learning",
            "Runs that learn badly, and healthy ones",
            columns,
            rows(cases, harmed, answers),
            misses(cases, harmed, answers["after"]),
        ).read_text()
    )


def rows(cases: list[Case], harmed: list[bool], answers: dict[str, list[list[str]]]) -> list[list[object]]:
    """By kind of case: how many ended with an open finding, and with a right one first; and all bad ones together."""
    kinds = {kind: {kind} for kind in dict.fromkeys(case.kind for case in cases)}
    together = {"all bad ones": set(kinds) - {"healthy"}} if set(kinds) - {"healthy"} else {}
    table: list[list[object]] = []
    for name, of in (kinds | together).items():
        places = [place for place, case in enumerate(cases) if case.kind in of]
        sick = [place for place in places if harmed[place]]
        cells: list[object] = [name, len(places), len(sick)]
        for found in answers.values():
            right = sum(bool(found[i]) and found[i][0] in cases[i].causes for i in sick)
            cells += [sum(bool(found[i]) for i in sick), right, sum(bool(found[i]) for i in {*places} - {*sick})]
        table.append(cells)
    return table


def misses(cases: list[Case], harmed: list[bool], found: list[list[str]]) -> list[str]:
    """Harmed ones without the right cause first, and others with a finding."""
    wrong = Counter(
        (sick, case.kind, case.name, (causes or ["nothing"])[0])
        for case, sick, causes in zip(cases, harmed, found, strict=True)
        if (sick or causes) and not (sick and causes and causes[0] in case.causes)
    )
    return [
        f"{'Not right' if sick else 'Found without harm'}: {kind}, {name}: {cause} ({count} runs)"
        for (sick, kind, name, cause), count in sorted(wrong.items())
    ]


if __name__ == "__main__":
    main()
