"""Weights & Biases: online, offline or not at all, without a question and without an account."""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from safelight.errors import CheckpointError
from safelight.files import Disk, read_plain, write_atomically
from safelight.record.fact_encoding import encode
from safelight.record.sinks.batch import NotWanted, SinkBatch, rows_of

ID_FILE, LARGEST_ID = "wandb-id", 1000  # bytes
ONLINE = ("online", "run", "shared")


class WeightsAndBiases:
    """RUN/wandb, and the server if there is a key. All starts of one run folder are one run there."""

    def __init__(
        self, folder: Path, *, config: dict[str, Any], run_name: str, from_step: int, say: Callable[[str], None]
    ) -> None:
        if switched_off(os.environ):
            raise NotWanted("is switched off by WANDB_MODE or WANDB_DISABLED.")
        silent = "wandb" not in sys.modules  # else it is the user's too, and may talk as it did before
        wandb = import_module("wandb")
        self._done = False
        with hooks_kept_off() as at_exit:
            found = wandb.setup(wandb.Settings(silent=True) if silent else None).settings
        atexit.register(self._leave, at_exit)
        if found.mode == "disabled":
            raise NotWanted("is switched off by `wandb disabled`.")
        offline = found.mode not in ONLINE
        if not offline and not has_key(found, os.environ):  # W&B would ask on the terminal
            say("The logger wandb has no API key, so it writes offline. Send it later: `wandb login`, `wandb sync`.")
            offline = True
        self._run = wandb.init(
            id=run_id(folder, os.environ),
            name=found.run_name or run_name,
            project=found.project or config.get("log", {}).get("project") or "safelight",
            dir=os.environ.get("WANDB_DIR") or folder,
            mode="offline" if offline else None,
            resume=found.resume or "allow",
            config=config,
            settings=wandb.Settings(console="off", silent=True, reinit="create_new", allow_val_change=True),
        )
        self._image, self._histogram = wandb.Image, wandb.Histogram
        self._step = self._run.starting_step
        if self._step > from_step:
            say(f"The logger wandb already has the steps before {self._step}; they are not sent again.")
        self._first = self._step

    def write(self, batch: SinkBatch) -> None:
        rows: dict[int, dict[str, Any]] = {step: dict(row) for step, row in rows_of(batch).items()}
        for row in rows.values():
            if lost := sum(number != number or abs(number) == float("inf") for number in row.values()):
                row["nonfinite"] = lost  # W&B draws no point where a number is not finite
        for step, name, counts, edges in batch.histograms:
            rows.setdefault(step, {})[name] = self._histogram(np_histogram=(counts, edges))
        for step, kind, path in batch.pictures:
            rows.setdefault(step, {})[f"picture/{kind}"] = self._image(str(path))
        for step, kind, facts in batch.events:
            rows.setdefault(step, {})[f"event/{kind}"] = encode(facts)
        for step in sorted(rows):
            if step >= self._first:
                # W&B drops what comes late, so it goes to the newest step. It overwrites nothing there: a signal
                # comes in the order of its steps, only different signals can overtake each other.
                self._step = max(self._step, step)
                self._run.log(rows[step], step=self._step)

    def close(self) -> None:
        self._run.finish()
        self._done = True

    def _leave(self, at_exit: list[Callable[..., object]]) -> None:
        """At the end of the program, before W&B's own hook, which would wait 90 s for a server that is gone."""
        if not self._done:
            for hook in at_exit:
                atexit.unregister(hook)


@contextmanager
def hooks_kept_off() -> Iterator[list[Callable[..., object]]]:
    """W&B replaces sys.exit and sys.excepthook, which prints tracebacks twice; what it wants at exit is listed."""
    before, listed = (sys.exit, sys.excepthook, atexit.register), list[Callable[..., object]]()

    def register(hook: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if threading.current_thread() is here:
            listed.append(hook)
        return before[2](hook, *arguments, **options)

    here = threading.current_thread()
    atexit.register = register
    try:
        yield listed
    finally:
        sys.exit, sys.excepthook, atexit.register = before


def switched_off(environment: Mapping[str, str]) -> bool:
    """Checked before the package is imported."""
    disabled = environment.get("WANDB_DISABLED", "").lower() not in ("", "0", "false", "no", "off", "n", "f")
    return disabled or environment.get("WANDB_MODE", "").lower() == "disabled"


def has_key(settings: Any, environment: Mapping[str, str]) -> bool:
    """Whether W&B would find a key by itself; the key is not read any further."""
    if environment.get("WANDB_API_KEY") or environment.get("WANDB_IDENTITY_TOKEN_FILE") or settings.api_key:
        return True
    netrc = import_module("requests.utils")  # a part of W&B's; `wandb login` puts the key there
    return netrc.get_netrc_auth(settings.base_url) is not None


def run_id(folder: Path, environment: Mapping[str, str]) -> str:
    """WANDB_RUN_ID, or the one that the run folder remembers, or a new one; remembered from now on."""
    path = folder / ID_FILE
    stored = ""
    with contextlib.suppress(CheckpointError):
        stored = read_plain(path, LARGEST_ID, Disk(folder)).decode(errors="replace").strip()
    chosen = environment.get("WANDB_RUN_ID") or stored or secrets.token_hex(6)
    if chosen != stored:
        write_atomically(path, f"{chosen}\n".encode(), Disk(folder))
    return chosen
