"""Whether runs that learn badly end with an open finding of the right cause, and whether healthy ones end without any.

    python -m bench.learning                      # 96 bad runs and 60 healthy ones; about 40 minutes on two cores
    python -m bench.learning --before f72717b     # and what the code of that revision says about the same records

Each run trains the digits of 8 px, fashion-mnist or shapes with a small network for 200 steps of 128 images. Bad ones
differ from the healthy ones of the same data and seed by one setting.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.measure import write_table

ROOT = Path(__file__).parents[1]
STEPS, SMALL = 200, {"model.widths": [16, 32], "model.attention": [], "model.norm_groups": 8, "model.layers": 1}
RATE = 2e-3
SCRIPT = """
import json, sys, safelight
safelight.train(sys.argv[1], run=sys.argv[2], settings=json.loads(sys.argv[3]))
"""
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


def bad(seeds: int) -> Iterator[Case]:
    high, low = ("lr.too-high", "lr.no-warmup", "loss.diverged"), ("lr.too-low",)
    for seed in range(seeds):
        for data in DATA:
            for factor in (10, 30, 100, 300):
                yield Case("rate too high", f"x{factor}", data, seed, {"optimizer.lr": RATE * factor}, high)
            for factor in (10, 30, 100, 1000):
                yield Case("rate too low", f"d{factor}", data, seed, {"optimizer.lr": RATE / factor}, low)
            for width in (1, 2, 4):
                yield Case("width", f"w{width}", data, seed, narrow(width), ("model.too-small",))
            for factor in (5, 10, 30):
                settings = {"optimizer.lr": RATE * factor, "optimizer.warmup": 0}
                yield Case("no warmup", f"x{factor}", data, seed, settings, high)
            yield Case("short", "40 steps", data, seed, {"train.steps": 40}, ("loss.undertrained",))
            yield Case("EMA", "0.993", data, seed, {"ema.kind": "exponential", "ema.warmup": False, "ema.decay": 0.993},
                       ("ema.too-long", "ema.lags"))  # fmt: skip


def narrow(width: int) -> dict[str, Any]:
    return {"model.widths": [width, width], "model.norm_groups": 1, "model.attention": []}


HEALTHY: dict[str, dict[str, Any]] = {
    "as it is": {},
    "x3": {"optimizer.lr": 3 * RATE},
    "half": {"optimizer.lr": RATE / 2},
    "epsilon": {"diffusion.prediction": "epsilon"},
    "sample": {"diffusion.prediction": "sample"},
    "linear": {"diffusion.schedule": "linear", "diffusion.prediction": "epsilon"},
    "batch of 32": {"train.batch_size": 32, "train.steps": 400},
    "wide": {"model.widths": [32, 64]},
    "unconditional": {"model.conditional": False},
    "min-SNR": {"diffusion.weighting": "min-snr"},
}


def healthy(seeds: int) -> Iterator[Case]:
    for seed in range(seeds):
        for data in DATA:
            for name, settings in HEALTHY.items():
                yield Case("healthy", name, data, seed, settings)


def train(case: Case, folder: Path) -> Path:
    """In a process of its own: a run that crashes is a result as well."""
    run = folder / case.folder
    if not (run / "record.sqlite").exists():
        settings = {"train.steps": STEPS, "train.batch_size": 128, "train.preflight": "tell", "train.threads": 1}
        settings |= {"train.seed": case.seed, "optimizer.lr": RATE, "evaluate.every": 0, "sample.every": STEPS}
        settings |= SMALL | DATA[case.data] | case.settings
        command = [sys.executable, "-c", SCRIPT, case.data, str(run), json.dumps(settings)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if not (run / "record.sqlite").exists():
            raise RuntimeError(f"{case.folder} did not begin: {ended.stderr[-500:]}")
    return run


def without_new_settings(run: Path, folder: Path) -> Path:
    """A copy that code from before `train.patience` can read."""
    copy = folder / run.name
    copy.mkdir(parents=True, exist_ok=True)
    for name in ("record.sqlite", "run.json"):
        shutil.copy(run / name, copy / name)
    lines = (run / "config.yaml").read_text().splitlines(keepends=True)
    (copy / "config.yaml").write_text("".join(line for line in lines if "patience" not in line))
    return copy


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
    parser.add_argument("--most", type=int, help="stop after so many runs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder, trees = given.runs or Path(temporary) / "runs", {"after": ROOT}
        if given.before:
            trees = {"before": Path(temporary) / "before"} | trees
            subprocess.run(
                ["git", "worktree", "add", "-q", "--detach", str(trees["before"]), given.before], cwd=ROOT, check=True
            )
        try:
            cases = [*bad(given.seeds), *healthy(given.seeds)][: given.most]
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                runs = list(pool.map(lambda case: train(case, folder), cases))
                answers: dict[str, list[list[str]]] = {}
                for name, tree in trees.items():
                    seen = (
                        runs if tree == ROOT else [without_new_settings(run, Path(temporary) / "old") for run in runs]
                    )
                    answers[name] = list(pool.map(partial(diagnose, tree=tree), seen))
        finally:
            if given.before:
                subprocess.run(["git", "worktree", "remove", "--force", str(trees["before"])], cwd=ROOT, check=False)
    columns = ["kind", "runs", *(f"{name}: {what}" for name in answers for what in ("open", "right cause first"))]
    print(
        write_table(
            "learning",
            "Runs that learn badly, and healthy ones",
            columns,
            rows(cases, answers),
            misses(cases, answers["after"]),
        ).read_text()
    )


def rows(cases: list[Case], answers: dict[str, list[list[str]]]) -> list[list[object]]:
    """By kind of case: how many ended with an open finding, and with a right one first."""
    table: list[list[object]] = []
    for kind in dict.fromkeys(case.kind for case in cases):
        places = [place for place, case in enumerate(cases) if case.kind == kind]
        cells: list[object] = [kind, len(places)]
        for found in answers.values():
            right = sum(bool(found[i]) and found[i][0] in cases[i].causes for i in places)
            cells += [sum(bool(found[i]) for i in places), right]
        table.append(cells)
    return table


def misses(cases: list[Case], found: list[list[str]]) -> list[str]:
    wrong = Counter(
        (case.kind, case.name, (causes or ["nothing"])[0])
        for case, causes in zip(cases, found, strict=True)
        if (causes or case.causes) and not (causes and causes[0] in case.causes)
    )
    return [
        f"Not right: {kind}, {name}: {cause} ({count} runs)" for (kind, name, cause), count in sorted(wrong.items())
    ]


if __name__ == "__main__":
    main()
