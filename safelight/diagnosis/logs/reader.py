"""Any log, by its path: which format it has, and in a folder, which of its files is the log."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from safelight.diagnosis.logs import delimited, json_lines, plain_text, tensorboard_events, wandb_file
from safelight.diagnosis.logs.cells import Row
from safelight.diagnosis.logs.columns import best
from safelight.diagnosis.logs.packages import MissingPackage
from safelight.diagnosis.logs.readings import LogReadings, readings_of
from safelight.diagnosis.logs.table import Table
from safelight.errors import UsageError

DEPTH, ENTRIES = 6, 20_000  # of a folder that are looked at
MOST_OPENED = 200  # files that may be a log
FIRST_ROWS = 2000  # in which a loss has to come, so that a file of a folder counts as a log
SHOWN = 12
NOT_LOGS = {".zip", ".gz", ".idx", ".png", ".jpg", ".jpeg", ".safetensors", ".pt", ".ckpt", ".py", ".yaml", ".yml"}
# Of several kinds in one folder the first: those that need no other package, then those with all digits.
KINDS = ("CSV", "JSON lines", "JSON", "TensorBoard", "W&B", "text")
TEXTS = {".log", ".txt", ".out", ".err"}
SUFFIXES = {".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".wandb", *TEXTS}


@dataclass(frozen=True, slots=True)
class TrainingLog:
    path: Path
    kind: str
    rows: Callable[[], Iterator[Row]]

    def has_loss(self) -> bool:
        try:
            table = Table().extend(itertools.islice(self.rows(), FIRST_ROWS))
        except MissingPackage:
            return True  # not known; reading it says what is needed
        except (UsageError, OSError):
            return False
        return bool(best(table.columns, "loss"))


def read_log(path: Path, loss: str | None = None) -> LogReadings:
    """`loss`: the column that is the loss, where its name does not say so."""
    log = log_at(path)
    try:
        table = Table(loss).extend(log.rows())
    except OSError as error:
        raise UsageError(f"{log.path} cannot be read: {error.strerror or error}.") from error
    if not table.rows:
        raise UsageError(f"{log.path} has no numbers with names in it that could be a log of a training.")
    notes = () if log.path == path else (f"Of {path}, {log.path.relative_to(path)} was read.",)
    return readings_of(table, str(log.path), log.kind, notes)


def log_at(path: Path) -> TrainingLog:
    if not os.path.lexists(path):
        raise UsageError(f"{path} does not exist.")
    return _in_folder(path) if os.path.isdir(path) else _of_file(path)


def _of_file(path: Path) -> TrainingLog:
    if not os.path.isfile(path):
        raise UsageError(f"{path} is neither a file nor a folder.")
    if tensorboard_events.MARK in path.name:
        return TrainingLog(path, "TensorBoard", lambda: tensorboard_events.rows([path]))
    if path.suffix == ".wandb":
        return TrainingLog(path, "W&B", lambda: wandb_file.rows(path))
    if path.suffix.lower() in (".csv", ".tsv"):
        return TrainingLog(path, "CSV", lambda: delimited.rows(path))
    if json_lines.is_lines(path):
        return TrainingLog(path, "JSON lines", lambda: json_lines.rows(path))
    if path.suffix.lower() == ".json" or (json_lines.is_json(path) and path.suffix.lower() not in TEXTS):
        return TrainingLog(path, "JSON", lambda: json_lines.document_rows(path))
    if delimited.is_delimited(path):
        return TrainingLog(path, "CSV", lambda: delimited.rows(path))
    return TrainingLog(path, "text", lambda: plain_text.rows(path))


def _in_folder(folder: Path) -> TrainingLog:
    found = _logs_in(folder)
    for kind in KINDS:
        logs = _newest_state([log for log in found if log.kind == kind])
        if len(logs) == 1:
            return logs[0]
        if logs:
            raise UsageError(
                f"{folder} has {len(logs):,} logs. Name one of them:\n"
                + "\n".join(f"  {log.path}" for log in logs[-SHOWN:])
                + (f"\n  … and {len(logs) - SHOWN:,} older ones" if len(logs) > SHOWN else "")
            )
    raise UsageError(
        f"{folder} has no log with a loss in it. Logs are CSV, JSON lines, trainer_state.json, TensorBoard's events, "
        "files of W&B, and text."
    )


def _newest_state(logs: list[TrainingLog]) -> list[TrainingLog]:
    """HF Trainer writes its whole history into each checkpoint: the newest has it all."""
    states = [log for log in logs if log.path.name == "trainer_state.json"]
    newest = max(states, key=lambda log: log.path.stat().st_mtime, default=None)
    return [log for log in logs if log not in states or log is newest]


def _logs_in(folder: Path) -> list[TrainingLog]:
    """Those with a loss, the newest last."""
    found: list[TrainingLog] = []
    for here, names in _walk(folder):
        events = [here / name for name in names if tensorboard_events.MARK in name]
        if events:
            whole = here if len(events) > 1 or here != folder else events[0]
            found.append(TrainingLog(whole, "TensorBoard", lambda events=events: tensorboard_events.rows(events)))
        found += [log for name in names if (log := _candidate(here / name)) is not None]
    opened = sorted(found, key=lambda log: log.path.stat().st_mtime)[-MOST_OPENED:]
    return [log for log in opened if log.has_loss()]


def _candidate(path: Path) -> TrainingLog | None:
    is_state = path.name == "trainer_state.json"  # other JSON is settings
    if tensorboard_events.MARK in path.name or not (is_state or path.suffix.lower() in SUFFIXES - {".json"}):
        return None
    try:
        return _of_file(path)
    except (UsageError, OSError):
        return None


def _walk(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Folders and the files in them, no deeper and no more than is allowed; links to folders are not followed."""
    left = ENTRIES
    for here, folders, files in os.walk(folder):
        depth = len(Path(here).relative_to(folder).parts)
        folders[:] = sorted(folders) if depth < DEPTH else []
        left -= len(folders) + len(files)
        yield Path(here), sorted(files)
        if left <= 0:
            return


def is_log(path: Path) -> bool:
    """Whether a path that is not a run is a log, and not images."""
    if os.path.isdir(path):
        return bool(_logs_in(path))
    if tensorboard_events.MARK in path.name or path.suffix.lower() in SUFFIXES:
        return True  # whatever is in it, or if it is not there: the reader says so
    if not os.path.isfile(path) or path.suffix.lower() in NOT_LOGS:
        return False
    with path.open("rb") as file:
        begin = file.read(1024)
    is_text = b"\0" not in begin or begin.startswith((b"\xff\xfe", b"\xfe\xff"))
    return is_text and not begin.startswith((b"PK\3\4", b"\x1f\x8b"))
