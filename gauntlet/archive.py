"""Runs that were kept: their records, for rules of another day to judge."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import safelight
from gauntlet.scenario import Verdict
from gauntlet.trial import look

LARGE = ("checkpoints", "samples", "snapshots")  # which no rule reads


def keep(archive: Path, verdict: Verdict, run: Path) -> None:
    """A sweep that is broken off loses only what was under way."""
    slug = re.sub(r"[^a-z0-9.+-]+", "_", f"{verdict.base} {verdict.kind} {verdict.id} {verdict.seed}".lower())
    place = archive / slug
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    if run.is_dir():
        shutil.copytree(run, place / "run", ignore=shutil.ignore_patterns(*LARGE))
    (place / "verdict.json").write_text(json.dumps(verdict.to_json()) + "\n")


def judge_again(archive: Path) -> list[Verdict]:
    """What the rules of today say of every kept run. Questions that a run was asked because of a finding of its own day
    are asked no more, and a cause that is new says itself since when."""
    return [_judge_again(path) for path in sorted(archive.glob("*/verdict.json"))]


def _judge_again(path: Path) -> Verdict:
    verdict = Verdict.from_json(json.loads(path.read_text()))
    run = path.parent / "run"
    if not (run / "record.sqlite").is_file():
        return verdict
    before, verdict.looks = verdict.looks, {}
    look(verdict, safelight.diagnose(run), 0)
    since = {found["cause"]: 0 if verdict.preflight else found["step"] + 1 for found in verdict.findings}
    verdict.looks = {cause: before.get(cause, since[cause]) for cause in verdict.looks}
    return verdict
