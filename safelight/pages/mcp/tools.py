"""What an agent can ask about runs: plain functions of names and words that return JSON, and read only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safelight.config.phrases import nearest_setting
from safelight.config.resolve import nearest, types_of_fields
from safelight.config.search import search
from safelight.diagnosis.doctor import diagnose_run, look_up
from safelight.errors import UsageError
from safelight.files import MAX_PICTURE_BYTES
from safelight.pages.data.gallery import locate
from safelight.pages.data.overview import open_run_history, overview
from safelight.pages.data.run_files import read_bytes
from safelight.pages.data.run_list import compare_runs, entry
from safelight.pages.data.runs import FoundRun, find_runs
from safelight.record.dump import choose_signals, describe

MAX_POINTS, MAX_LISTED, MAX_SIGNALS = 400, 200, 20
MAIN_SIGNALS = ("loss/mean", "loss/smooth", "skill/ema", "optimizer/lr", "gradient/norm", "quality/distance")


@dataclass(frozen=True, slots=True)
class RunReader:
    """The runs below some folders, and nothing else."""

    roots: Sequence[Path]

    def list_runs(self, find: str = "") -> dict[str, Any]:
        """All runs, the newest first: state, step, loss, skill, distance from real images, worst finding, verdict.
        `find`: only those whose name has this word."""
        runs = [entry(run) for run in find_runs(self.roots) if find.casefold() in run.name.casefold()]
        runs.sort(key=lambda run: -(run["created"] or 0))
        return {"runs": runs[:MAX_LISTED], "count": len(runs)}

    def read_run(self, run: str) -> dict[str, Any]:
        """One run: verdict, progress, findings, settings, data, evaluation, and the names of its signals."""
        found = self._find(run)
        shown = overview(found.folder, found)
        dropped = ("pictures", "events", "signals", "cursor", "version")
        kept = {key: value for key, value in shown.items() if key not in dropped}
        return kept | {"signals": [signal["name"] for signal in shown["signals"]]}

    def diagnose(self, run: str) -> dict[str, Any]:
        """What is wrong with a run: findings with cause, evidence and fix; the verdict; how many rules could look."""
        return diagnose_run(self._find(run).path).to_json()

    def read_metrics(self, run: str, signals: Sequence[str] = (), points: int = 40) -> dict[str, Any]:
        """Curves of some signals, by default the main ones: last, recent mean, lowest and highest value, and about
        `points` spans of the curve."""
        if not 0 <= points <= MAX_POINTS or len(signals) > MAX_SIGNALS:
            raise UsageError(f"At most {MAX_SIGNALS} signals and {MAX_POINTS} points at once.")
        with open_run_history(self._find(run).folder) as history:
            present = history.signals()
            names = choose_signals(present, tuple(signals) or tuple(name for name in MAIN_SIGNALS if name in present))
            return {name: describe(history, name, points=points or None) for name in names[:MAX_SIGNALS]}

    def compare(self, runs: Sequence[str]) -> dict[str, Any]:
        """Runs side by side: the settings that differ, and the state, numbers and verdict of each."""
        if not 2 <= len(runs) <= MAX_SIGNALS:
            raise UsageError(f"Name 2 to {MAX_SIGNALS} runs.")
        found = compare_runs([self._find(each) for each in runs])
        kept = [{k: v for k, v in run.items() if k not in ("pictures", "signals")} for run in found["runs"]]
        return {"settings": found["settings"], "runs": kept}

    def read_picture(self, run: str, step: int | None = None, kind: str = "samples") -> tuple[bytes, str]:
        """The samples of a run as a picture: of the newest stage, or of the newest one up to `step`. `kind`: samples,
        denoising, raw_and_averaged, …"""
        found = self._find(run)
        with open_run_history(found.folder) as history:
            pictures = list(locate(found.folder, history.pictures(most=10_000)))
        chosen = [each for each in pictures if each.row.kind == kind and (step is None or each.row.step <= step)]
        if not chosen:
            kinds = sorted({each.row.kind for each in pictures})
            raise UsageError(
                f"{found.name} has no picture of the kind {kind!r}{f' up to step {step}' if step is not None else ''}. "
                f"It has: {', '.join(kinds) or 'none'}."
            )
        path = max(chosen, key=lambda each: each.row.step).path
        content = read_bytes(path, MAX_PICTURE_BYTES)
        if content is None:
            raise UsageError(f"The picture {path.name} of {found.name} cannot be read.")
        return content, path.suffix.lstrip(".").lower().replace("jpg", "jpeg")

    def explain(self, word: str) -> dict[str, Any]:
        """What a finding means, by its code (LRA001) or cause (lr.too-high), or what may be behind a symptom (blurry,
        nan, plateau, mode collapse, …)."""
        found = look_up(word)
        if not isinstance(found, list):
            return {"rules": [found.to_json()]}
        return {"symptoms": [symptom.to_json() for symptom in found]}

    def find_setting(self, word: str) -> dict[str, Any]:
        """Settings of `safelight train` that a word is about (learning rate, mixed precision, ema decay, …)."""
        found = search(word)
        if not found.settings and not found.notes:
            raise UsageError(f"No setting is about {word!r}{nearest_setting(word, types_of_fields())}")
        return {"settings": [asdict(setting) for setting in found.settings], "notes": found.notes}

    def _find(self, run: str) -> FoundRun:
        """By its name in the list, its id, or its path."""
        found = find_runs(self.roots)
        for each in found:
            if run in (each.name, each.id, str(each.path)) or Path(run).resolve() == each.path:
                return each
        raise UsageError(f"There is no run {run!r}{nearest(run, [each.name for each in found])} `list_runs` has them.")
